"""Feeding streams to heads that learn in one pass; tasks that streams share are learned once."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lastlayer.catalogue import HEADS
from lastlayer.errors import UnsupportedError
from lastlayer.heads import FeatureMap, Head, KnnHead, make_head, make_map
from lastlayer.heads.head import Preset
from lastlayer.heads.maps import ROWS
from lastlayer.heads.maps.mapped_head import MappedHead
from lastlayer.training.batches import shuffled_batches
from lastlayer.training.pool import Pool, Rules, Score, Stream, Vectors

EVALUATE = 1 << 22  # logits at a time
KEPT = 1 << 29  # bytes of statistics that orders may share, at most
TOGETHER = 4  # batches that a head behind a map learns at once
MAPPED = 2000  # test samples that are mapped at a time
SLOW = 1e10  # multiplications before an answer: a fraction of a second on one core
ANSWERS = 10  # of a stream of more tasks, by a head that is so slow to answer

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
    It is asked after the tasks that ``asked_after`` says; its counts after others are −1.
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
    sizes = pool.z.shape[1], pool.n_classes
    asked = {n: frozenset(asked_after(head, *sizes, n)) for n in {len(s.tasks) for s in streams}}
    feeder = _Feeder(pool, rules, make, columns, keep_vectors, memory, asked)
    if isinstance(like, MappedHead):
        feeder.map_options = like.options
        if len(streams) == 1:  # no other order can reuse what it learned, and copies are large
            feeder.memory = 0
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


def asked_after(head: str, in_features: int, n_classes: int, n_tasks: int) -> list[int]:
    """Return the tasks, from 0, after which a head answers: all, or ten of many, the last included.

    A head that solves a large system or trains a layer before it can answer would take longer to
    answer after each of many small tasks than to learn them all. The paper's heads answer always.

    >>> asked_after("random_slda", 64, 10, n_tasks=100)
    [9, 19, 29, 39, 49, 59, 69, 79, 89, 99]
    >>> asked_after("random_slda", 64, 10, n_tasks=5), len(asked_after("slda", 64, 10, n_tasks=100))
    ([0, 1, 2, 3, 4], 100)
    """
    card = HEADS[head]
    if n_tasks <= ANSWERS or card.in_paper or card.refresh(in_features, n_classes) < SLOW:
        return list(range(n_tasks))
    return [-(-n_tasks * (k + 1) // ANSWERS) - 1 for k in range(ANSWERS)]


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
    asked: Mapping[int, frozenset[int]]  # number of tasks → those after which a head answers
    map_options: Mapping[str, Any] | None = None  # of heads behind a feature map
    maps: dict[bytes, FeatureMap] = field(default_factory=dict)
    mapped: dict[bytes, Sequence[Tensor]] = field(default_factory=dict)  # the test samples
    learned: dict[tuple[bytes, Task], Head] = field(default_factory=dict)
    counted: dict[tuple[bytes, tuple[Task, ...]], After] = field(default_factory=dict)
    kept: int = 0  # bytes of the heads in ``learned``

    def nothing(self) -> Tensor:
        """Return the counts of a head that cannot predict."""
        return torch.full(self.columns.shape[1:], -1)

    def in_turn(self, stream: Stream) -> Iterator[After]:
        """Learn one task after another."""
        head = self._make(stream)
        answers = self._answers(head, stream)
        for place, rows in enumerate(stream.tasks):
            self._learn(head, rows, stream.seed)
            asked = place in self.asked[len(stream.tasks)]
            yield self._after(head, answers) if asked else (self.nothing(), None)

    def in_any_order(self, stream: Stream) -> Iterator[After]:
        """Learn each distinct task once for all streams, and score each set of tasks once.

        What a task taught is kept and merged in, as long as there is room and the head can be
        merged; otherwise it is learned again, but only for sets of tasks not scored yet.
        """
        head: Head | None = None
        answers: Callable[[], Tensor] | None = None
        known, waiting = tuple[Task, ...](), list[Tensor]()
        family = self._family(stream)
        for place, rows in enumerate(stream.tasks):
            known = tuple(sorted((*known, self._task(rows, stream.seed))))
            waiting.append(rows)
            if place not in self.asked[len(stream.tasks)]:
                yield self.nothing(), None
                continue
            if (family, known) not in self.counted:
                before, head = head, head or self._make(stream)
                for part in waiting:
                    head = self._with(head, part, stream)
                waiting = []
                if head is not before or answers is None:
                    answers = self._answers(head, stream)
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
        batches = [
            positions
            for positions in shuffled_batches(len(rows), self.rules.batch_size, generator)
            if len(positions) > 1 or not self.rules.skip_single
        ]
        # To a head behind a map batches make no difference, and each goes through a large matrix.
        at_once = TOGETHER if isinstance(head, MappedHead) else 1
        for start in range(0, len(batches), at_once):
            batch = rows[torch.cat(batches[start : start + at_once])].to(self.pool.z.device)
            head.observe(self.pool.z[batch], self.pool.y[batch])

    def _answers(self, head: Head, stream: Stream) -> Callable[[], Tensor]:
        """Return a function that predicts the test samples; for knn it looks only at new data."""
        z = self.pool.test_z
        if isinstance(head, KnnHead):
            followed = head.follow(z)
            return lambda: followed.logits().argmax(dim=-1)
        if isinstance(head, MappedHead) and 8 * len(z) * head.map.width <= KEPT:
            mapped = self._mapped(head.map, stream)
            return lambda: torch.cat([head.inner.predict(part) for part in mapped])
        size = max(EVALUATE // self.pool.n_classes, 1)
        return lambda: torch.cat([head.predict(part) for part in z.split(size)])

    def _mapped(self, map: FeatureMap, stream: Stream) -> Sequence[Tensor]:
        """Return the test samples behind a map, in pieces: they are mapped once for all answers."""
        key = self._family(stream)
        if key not in self.mapped:
            self.mapped = {key: [map(part) for part in self.pool.test_z.split(MAPPED)]}
        return self.mapped[key]

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
