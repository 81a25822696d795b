"""Feeding streams to heads that learn in one pass; tasks that streams share are learned once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lastlayer.errors import UnsupportedError
from lastlayer.heads import FeatureMap, Head, KnnHead, make_head, make_map
from lastlayer.heads.head import Preset
from lastlayer.heads.maps import ROWS
from lastlayer.heads.maps.mapped_head import MappedHead
from lastlayer.training.batches import shuffled_batches
from lastlayer.training.pool import Pool, Rules, Score, Stream, Vectors

EVALUATE = 1 << 22  # logits at a time
KEPT = 1 << 29  # bytes of statistics that orders may share, at most

After = tuple[Tensor, nn.Linear | None]  # a head after a task: right answers, and its vectors
Task = tuple[bytes, int]  # its rows, and the seed where that decides which of them are learned


def feed(
    pool: Pool,
    streams: Sequence[Stream],
    head: str,
    preset: Preset,
    rules: Rules,
    *,
    keep_vectors: bool = False,
    on_task: Callable[[int], None] | None = None,
    memory: int = KEPT,
) -> list[Score]:
    """Feed each stream to a new head, and score it before training and after each epoch.

    Such a head learns in the first epoch of a task; later epochs change neither it nor its score.
    A head behind a feature map gets the same map in every order of the same tasks: ``map_rows``
    says which rows fix it. Heads that ignore order are scored once for each set of tasks.

    Args:
        pool: the samples, on the device to learn on.
        streams: orders of tasks; ``repeat`` is for heads trained by gradient.
        head: the name of a head with ``passes = 1``.
        preset: "exact" or "paper".
        rules: epochs and batches.
        keep_vectors: whether to return the output vectors of a linear head after each task too.
        on_task: called with the number of samples after each task of each stream.
        memory: bytes to spend on what single tasks taught, so that other orders can reuse it.
    """
    make = partial(make_head, head, pool.z.shape[1], pool.n_classes, preset=preset)
    columns = pool.test_columns().to(pool.z.device)
    like = make()
    feeder = _Feeder(pool, rules, make, columns, keep_vectors, memory)
    feeder.map_options = like.options if isinstance(like, MappedHead) else None
    follow = feeder.in_any_order if like.abilities.order_free else feeder.in_turn
    scores = []
    for stream in streams:
        curve, layers = [feeder.nothing()], []
        for rows, (counts, layer) in zip(stream.tasks, follow(stream), strict=True):
            curve += [counts] * rules.epochs
            layers.append(layer)
            if on_task is not None:
                on_task(len(rows))
        whole = torch.stack(curve)
        by_class, by_group = whole[:, : pool.n_classes], whole[:, pool.n_classes :]
        scores.append(Score(by_class, by_group, vectors=_vectors(layers)))
    return scores


def _vectors(layers: list[nn.Linear | None]) -> Vectors | None:
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(layers):
        return None
    weight = torch.stack([layer.weight.detach().cpu() for layer in known])
    bias = torch.stack([layer.bias.detach().cpu() for layer in known])
    return Vectors(weight, torch.ones_like(bias), bias)


def map_rows(stream: Stream) -> Tensor:
    """Return the rows that fix the feature map of heads that need one.

    1,000 rows in the order of the data: of the task that holds the earliest row, then of the task
    with the next, as far as needed, so that they are the same for all orders of the same tasks.
    """
    in_order = (rows.sort().values for rows in stream.tasks if len(rows))
    tasks = sorted(in_order, key=lambda rows: int(rows[0]))
    return torch.cat(tasks)[:ROWS] if tasks else torch.zeros(0, dtype=torch.int64)


@dataclass
class _Feeder:
    """Follows streams, and yields the count (N + groups) of a head's right answers after each task.

    With each count comes the head as an ordinary linear layer, or None.
    """

    pool: Pool
    rules: Rules
    make: Callable[..., Head]
    columns: Tensor  # (m, N + groups)
    keep_vectors: bool
    memory: int
    map_options: Mapping[str, Any] | None = None  # of heads behind a feature map
    maps: dict[bytes, FeatureMap] = field(default_factory=dict)
    learned: dict[tuple[bytes, Task], Head] = field(default_factory=dict)
    counted: dict[tuple[bytes, tuple[Task, ...]], After] = field(default_factory=dict)
    kept: int = 0  # bytes of the heads in ``learned``

    def nothing(self) -> Tensor:
        """Return the counts of a head that cannot predict."""
        return torch.full(self.columns.shape[1:], -1)

    def in_turn(self, stream: Stream) -> Iterator[After]:
        """Learn one task after another."""
        head = self._make(stream)
        answers = self._answers(head)
        for rows in stream.tasks:
            self._learn(head, rows, stream.seed)
            yield self._after(head, answers)

    def in_any_order(self, stream: Stream) -> Iterator[After]:
        """Learn each distinct task once for all streams, and score each set of tasks once.

        What a task taught is kept and merged in, as long as there is room and the head can be
        merged; otherwise it is learned again, but only for sets of tasks not scored yet.
        """
        head: Head | None = None
        answers: Callable[[], Tensor] | None = None
        known, waiting = tuple[Task, ...](), list[Tensor]()
        family = self._family(stream)
        for rows in stream.tasks:
            known = tuple(sorted((*known, self._task(rows, stream.seed))))
            waiting.append(rows)
            if (family, known) not in self.counted:
                before, head = head, head or self._make(stream)
                for part in waiting:
                    head = self._with(head, part, stream)
                waiting = []
                if head is not before or answers is None:
                    answers = self._answers(head)
                self.counted[family, known] = self._after(head, answers)
            yield self.counted[family, known]

    def _task(self, rows: Tensor, seed: int) -> Task:
        return rows.numpy().tobytes(), seed if self._skips(rows) else 0

    def _with(self, head: Head, rows: Tensor, stream: Stream) -> Head:
        """Return the head with one more task: merged in if it was kept, otherwise learned now."""
        key = self._family(stream), self._task(rows, stream.seed)
        if key not in self.learned and self._has_room(head):
            self.learned[key] = self._make(stream)
            self._learn(self.learned[key], rows, stream.seed)
            self.kept += _size(self.learned[key])
        if key in self.learned:
            return head.merge(self.learned[key])
        self._learn(head, rows, stream.seed)
        return head

    def _has_room(self, head: Head) -> bool:
        can = head.abilities
        return can.merges and not can.keeps_samples and self.kept + _size(head) <= self.memory

    def _family(self, stream: Stream) -> bytes:
        """Return a key that is equal for streams that share a feature map."""
        return b"" if self.map_options is None else map_rows(stream).numpy().tobytes()

    def _make(self, stream: Stream) -> Head:
        device, chosen = self.pool.z.device, self.map_options
        if chosen is None:
            return self.make().to(device)
        key = self._family(stream)
        if key not in self.maps:
            sizes = self.pool.z.shape[1], chosen["width"]
            fresh = make_map(chosen["map"], *sizes, chosen["seed"]).to(device)
            self.maps[key] = fresh.fit(self.pool.z[map_rows(stream).to(device)])
        return self.make(like=self.maps[key]).to(device)

    def _skips(self, rows: Tensor) -> bool:
        return self.rules.skip_single and len(rows) % self.rules.batch_size == 1

    def _learn(self, head: Head, rows: Tensor, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for positions in shuffled_batches(len(rows), self.rules.batch_size, generator):
            if len(positions) > 1 or not self.rules.skip_single:
                batch = rows[positions].to(self.pool.z.device)
                head.observe(self.pool.z[batch], self.pool.y[batch])

    def _answers(self, head: Head) -> Callable[[], Tensor]:
        """Return a function that predicts the test samples; for knn it looks only at new data."""
        z = self.pool.test_z
        if isinstance(head, KnnHead):
            followed = head.follow(z)
            return lambda: followed.logits().argmax(dim=-1)
        size = max(EVALUATE // self.pool.n_classes, 1)
        return lambda: torch.cat([head.predict(part) for part in z.split(size)])

    def _after(self, head: Head, answers: Callable[[], Tensor]) -> After:
        if not bool(head.seen.any()):  # its only sample was a batch of one
            return self.nothing(), None
        return self._count(answers), _as_linear(head) if self.keep_vectors else None

    def _count(self, answers: Callable[[], Tensor]) -> Tensor:
        right = (answers() == self.pool.test_y).to(self.columns.dtype)
        return (right @ self.columns).round().to("cpu", torch.int64)


def _size(head: Head) -> int:
    return sum(buffer.numel() * buffer.element_size() for buffer in head.buffers())


def _as_linear(head: Head) -> nn.Linear | None:
    try:
        return head.as_linear(torch.float64)
    except UnsupportedError:
        return None
