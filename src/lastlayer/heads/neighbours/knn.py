"""K nearest neighbours among the features seen: each votes for its class with 1/distance."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import Abilities
from lastlayer.core.checks import kind_of, whole
from lastlayer.core.names import look_up
from lastlayer.errors import ArgumentError, OptionError
from lastlayer.heads.answering import make_ready
from lastlayer.heads.graph import Value, masked, power_of_two
from lastlayer.heads.head import Preset
from lastlayer.heads.neighbours.nearest import (
    FEW,
    FixedQueries,
    Lengths,
    Nearest,
    extend,
    nearest_others,
    nobody,
)
from lastlayer.heads.neighbours.row_budget import RANKS, Budget
from lastlayer.heads.neighbours.stored_rows import StoringHead

_ROWS, _SPARE = 4096, 8  # in a graph: rows of one product, candidates beyond the voters
_OF_EACH_ROW = ("memory.y", "budget.priority")  # in the state of a head with a budget
_BLOCK = 1 << 20  # logits, or neighbours, that are made at once


class KnnHead(StoringHead):
    """The k nearest neighbours vote; the logits are the logarithms of their shares of the vote.

    Neighbours at distance 0 share the vote among themselves. At equal distance the row that was
    stored earlier is nearer. A class without a vote has logit −∞.

    Under "exact" everything is kept, unless there is a budget: then each ``observe`` cuts the
    classes above it. Under "paper" classes with more than 250 rows are cut to their 150 most
    central ones, after each ``observe`` while more than 200 · n_classes rows are stored, and
    before the first ``forward`` after it in any case.

    Args:
        preset: "exact" or "paper".
        k: how many neighbours vote; all of them while fewer are stored.
        budget: rows kept per class (None: all).
        keep: which ones: "central" (least summed distance to their class, as the paper),
            "random" (a uniform sample of all seen, whatever the batches) or "first".
        seed: of the random choice.

    >>> head = KnnHead(in_features=1, k=2)
    >>> head.observe(torch.tensor([[0.0], [3.0], [9.0]]), torch.tensor([0, 1, 1]))
    >>> head(torch.tensor([[1.0]])).softmax(dim=1)
    tensor([[0.6667, 0.3333]], dtype=torch.float64)
    """

    name = "knn"
    piece = sys.maxsize  # it cuts queries up itself

    def __init__(
        self,
        in_features: int,
        n_classes: int = 0,
        preset: Preset = "exact",
        *,
        k: int = 5,
        budget: int | None = None,
        keep: str = "central",
        seed: int = 0,
    ) -> None:
        super().__init__(in_features, n_classes, preset, k=k, budget=budget, keep=keep, seed=seed)
        for option, value, least in (("k", k, 1), ("budget", budget, 1), ("seed", seed, 0)):
            if option != "budget" or value is not None:
                whole(value, option, least)
        if not isinstance(keep, str):
            raise ArgumentError(f"keep must be a str, got {kind_of(keep)}")
        if preset == "paper" and (budget is not None or keep != "central"):
            raise OptionError(
                "preset 'paper' takes no budget and no keep, since it cuts classes to their "
                f"150 most central rows, got budget={budget} and keep='{keep}'"
            )
        look_up(keep, RANKS, "way to keep")
        self.k = k
        self._lengths = Lengths(self.memory)
        size, limit = (150, 250) if preset == "paper" else (budget, budget)
        self.budget = Budget(size, limit, keep, seed) if size and limit else None

    def predictor(self, z: Tensor) -> Callable[[], Tensor]:
        """Return a function that predicts these rows, and looks only at what is new each time."""
        z = self._check_features(z).to(self.seen.device)
        fixed = FixedQueries(z, self.k, self.memory)

        def predict() -> Tensor:
            with self.lock:
                make_ready(self)
                nearest = fixed.nearest()
                logits = self._room(nearest.row.shape[0])
                for *near, out in zip(*map(self._split, (*nearest, logits)), strict=True):
                    _vote(Nearest(*near), self.memory.y, out)
                return logits.argmax(dim=-1)

        return predict

    @property
    def abilities(self) -> Abilities:
        """With a budget some rows are gone: which, depends on the order, but not across classes."""
        whole = self.budget is None
        return Abilities(
            keeps_samples=True, order_free=whole, merges=whole, forgets=whole, forgets_class=True,
            leaves_out=whole, weighs=True,
        )  # fmt: skip

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        sizes = {len(state_dict.get(prefix + name, ())) for name in _OF_EACH_ROW}
        if self.budget is not None and len(sizes) > 1:
            args[-1].append(f"{' and '.join(_OF_EACH_ROW)} must have as many rows, got {sizes}")

    def _why_not(self, ability: str) -> str:
        return "its budget has dropped rows; one with preset 'exact' and no budget can"

    def _forget_class(self, y: int) -> None:
        if self.budget is None:
            super()._forget_class(y)
        else:
            self.budget.keep(self.memory, self.memory.y != y)

    def _learn(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        super()._learn(z, y)
        if self.budget is not None:
            self.budget.admit(z.shape[0])
            if self.preset == "exact" or len(self.memory) > 200 * self.n_classes:
                self.budget.cut(self.memory)

    def _refresh(self) -> None:
        if self.budget is not None:
            self.budget.cut(self.memory)

    def _logits(self, z: Tensor) -> Tensor:
        return self._ask(z)[0]

    def _leave_one_out(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        logits = self._room(len(z))
        _vote(nearest_others(z, y, self._voters, self.memory), self.memory.y, logits)
        return logits

    def _ask(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of some rows, and the mean distance (n,) of their neighbours."""
        logits = self._room(z.shape[0])
        distance = logits.new_empty(z.shape[0])
        blocks = (self._split(t) for t in (z, logits, distance))
        for part, out, far in zip(*blocks, strict=True):
            nearest = self._nearest(part)
            _vote(nearest, self.memory.y, out)
            found = nearest.row >= 0
            near = nearest.squared.sqrt().masked_fill(~found, 0).sum(dim=1)
            far.copy_(near / found.sum(dim=1))
        return logits, distance

    def _judge(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self._ask(z.to(self.seen.device))

    def _evidence(self, logits: Tensor) -> Tensor:
        """Add one vote, shared by all classes: no class is impossible for want of a neighbour."""
        own = 1 / (self.k + 1)
        smoothed = logits.exp() * (1 - own) + own / self.seen.sum()
        return smoothed.log().masked_fill(~self.seen, -torch.inf)

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        """Write down a search over all rows, some thousands at a time, and the vote.

        Products choose a few candidates more than there are voters; differences decide among them.
        """
        graph, rows = z.graph, self.memory.z.double()
        stored, labels = graph.value(rows), graph.value(self.memory.y)
        middle = rows.mean(dim=0)
        unit = power_of_two(float((rows - middle).abs().max()))
        d = (z - middle) / unit
        k, few = min(self.k, len(rows)), min(self.k + _SPARE, len(rows))
        found = []
        for start in range(0, len(rows), _ROWS):
            end = min(start + _ROWS, len(rows))
            part = (graph.add("Slice", stored, start=start, end=end) - middle) / unit
            rough = d @ graph.add("Transpose", part) * -2.0 + part.square().reduce("Sum")
            best = graph.add_several("TopK", 2, rough, k=min(few, end - start), axis=1, largest=0)
            found.append((best[0], best[1] + torch.tensor(start)))
        row = found[0][1]
        if len(found) > 1:
            rough, row = (graph.add("Concat", *parts, axis=1) for parts in zip(*found, strict=True))
            _, place = graph.add_several("TopK", 2, rough, k=few, axis=1, largest=0)
            row = graph.add("GatherElements", row, place, axis=1)
        row, _ = graph.add_several("TopK", 2, row, k=few, axis=1, largest=0)  # the earlier first
        apart = graph.add("Unsqueeze", z, axis=1) - graph.add("Gather", stored, row, axis=0)
        squared = (apart / unit).square().reduce("Sum", axis=2)
        squared, place = graph.add_several("TopK", 2, squared, k=k, axis=1, largest=0)
        label = graph.add("Gather", labels, graph.add("GatherElements", row, place, axis=1), axis=0)
        distance = squared.unary("Sqrt") * unit
        return self._vote_graph(distance, label, k), distance.reduce("Sum") / float(k)

    def _vote_graph(self, distance: Value, label: Value, k: int) -> Value:
        graph, classes = distance.graph, torch.arange(self.n_classes, device=self.seen.device)
        here = graph.add("Where", graph.add("Equal", distance, 0.0), 1.0, 0.0)
        some_here = graph.add("Greater", here.reduce("Max", keep=True), 0.5)
        weight = graph.add("Where", some_here, here, graph.value(1.0) / distance)
        total = weight.reduce("Sum", keep=True)
        votes = [
            graph.add("Where", graph.add("Equal", label.column(j), classes), weight.column(j), 0.0)
            for j in range(k)
        ]
        for vote in votes[1:]:
            votes[0] = votes[0] + vote
        return (votes[0] / total).unary("Log")

    def _evidence_graph(self, logits: Value) -> Value:
        own = 1 / (self.k + 1)
        shares = logits.unary("Exp") * (1 - own) + own / float(self.seen.sum())
        return masked(shares.unary("Log"), self.seen)

    def _nearest(self, z: Tensor) -> Nearest:
        none = nobody(z.shape[0], self._voters, z.device)
        if 0 < z.shape[0] <= FEW:
            found = [self._lengths.nearest(query, self._voters) for query in z.split(1)]
            sure = [one for one in found if one is not None]
            if len(sure) == len(found):
                return Nearest(*(torch.cat(parts) for parts in zip(*sure, strict=True)))
        return extend(none, z, self.memory.z)

    def _room(self, n: int) -> Tensor:
        return torch.empty(n, self.n_classes, dtype=torch.float64, device=self.seen.device)

    def _split(self, tensor: Tensor) -> Sequence[Tensor]:
        return torch.split(tensor, _BLOCK // max(self._voters, self.n_classes) or 1)

    @property
    def _voters(self) -> int:
        """How many neighbours vote: k, where so many rows are kept."""
        return max(min(self.k, len(self.memory)), 1)


def _vote(nearest: Nearest, y: Tensor, out: Tensor) -> None:
    """Write the logarithms of the shares of the vote to ``out`` (n, n_classes)."""
    distance = nearest.squared.sqrt()
    here = distance == 0
    weight = torch.where(here.any(dim=1, keepdim=True), here.double(), 1 / distance)
    total = torch.zeros_like(out[:, :1])
    out.zero_()
    for vote, row in zip(weight.split(1, 1), nearest.row.split(1, 1), strict=True):
        out.scatter_add_(1, y[row], vote)  # one neighbour at a time: a fixed order of summation
        total += vote
    out.div_(total).log_()
