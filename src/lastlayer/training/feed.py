"""Feeding streams to heads that learn in one pass; what streams have in common is learned once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from lastlayer.errors import UnsupportedError
from lastlayer.heads import Head, KnnHead, make_head
from lastlayer.heads.head import Preset
from lastlayer.training.batches import shuffled_batches
from lastlayer.training.pool import Pool, Rules, Score, Stream, Vectors

EVALUATE = 1 << 22  # logits at a time
KEPT = 1 << 29  # bytes of statistics that orders may share

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
) -> list[Score]:
    """Feed each stream to a new head, and score it before training and after each epoch.

    Such a head learns in the first epoch of a task; later ones leave it, and its score, as it is.

    Args:
        pool: the samples, on the device to learn on.
        streams: orders of tasks; ``repeat`` is for heads trained by gradient.
        head: the name of a head with ``passes = 1``.
        preset: "exact" or "paper".
        rules: epochs and batches.
        keep_vectors: give the output vectors of a linear head after each task too.
        on_task: called with the number of samples after each task of each stream.
    """
    make = partial(make_head, head, pool.z.shape[1], pool.n_classes, preset=preset)
    columns = pool.test_columns().to(pool.z.device)
    feeder = _Feeder(pool, rules, make, columns, keep_vectors)
    follow = feeder.by_merging if _can_be_kept(make(), streams) else feeder.in_turn
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


def _can_be_kept(head: Head, streams: Sequence[Stream]) -> bool:
    """Say whether one head for each task can be kept, to be added up in every order."""
    size = sum(buffer.numel() * buffer.element_size() for buffer in head.buffers())
    can = head.abilities
    return (
        can.merges
        and not can.keeps_samples
        and size * max(len(stream.tasks) for stream in streams) <= KEPT
    )


@dataclass
class _Feeder:
    """Follows streams: it gives the right answers (N + groups) that a head has after each task.

    Beside them goes the head as an ordinary layer, or None.
    """

    pool: Pool
    rules: Rules
    make: Callable[[], Head]
    columns: Tensor  # (m, N + groups)
    keep_vectors: bool
    learned: dict[Task, Head] = field(default_factory=dict)
    counted: dict[tuple[Task, ...], After] = field(default_factory=dict)

    def nothing(self) -> Tensor:
        """Give the counts of a head that cannot predict."""
        return torch.full(self.columns.shape[1:], -1)

    def in_turn(self, stream: Stream) -> Iterator[After]:
        """Learn one task after the other."""
        head = self._make()
        answers = self._answers(head)
        for rows in stream.tasks:
            self._learn(head, rows, stream.seed)
            yield self._after(head, answers)

    def by_merging(self, stream: Stream) -> Iterator[After]:
        """Learn each distinct task once for all streams, and add them up in each one's order."""
        head = self._make()
        known: tuple[Task, ...] = ()
        for rows in stream.tasks:
            task = (rows.numpy().tobytes(), stream.seed if self._skips(rows) else 0)
            if task not in self.learned:
                self.learned[task] = self._make()
                self._learn(self.learned[task], rows, stream.seed)
            head, known = head.merge(self.learned[task]), (*known, task)
            if known not in self.counted:
                self.counted[known] = self._after(head, self._answers(head))
            yield self.counted[known]

    def _make(self) -> Head:
        return self.make().to(self.pool.z.device)

    def _skips(self, rows: Tensor) -> bool:
        return self.rules.skip_single and len(rows) % self.rules.batch_size == 1

    def _learn(self, head: Head, rows: Tensor, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for positions in shuffled_batches(len(rows), self.rules.batch_size, generator):
            if len(positions) > 1 or not self.rules.skip_single:
                batch = rows[positions].to(self.pool.z.device)
                head.observe(self.pool.z[batch], self.pool.y[batch])

    def _answers(self, head: Head) -> Callable[[], Tensor]:
        """Give what predicts the test samples whenever asked; knn then looks only at new data."""
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


def _as_linear(head: Head) -> nn.Linear | None:
    try:
        return head.as_linear(torch.float64)
    except UnsupportedError:
        return None
