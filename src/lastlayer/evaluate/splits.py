"""Which rows of a stream are held out to judge heads by."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lastlayer.data import FeatureSet
from lastlayer.data.hold_out import hold_out
from lastlayer.errors import DataError
from lastlayer.evaluate.stream import Stream

PART = 0.2  # of the rows is held out
FEW = 2000  # with fewer rows held out, splits are repeated
MOST_SPLITS = 10
MOST_HELD = 20_000  # more rows would cost time and tell no more
MOST_LOGITS = 4e8  # nor more rows × classes, as long as 2,000 rows are left


@dataclass(frozen=True, eq=False)
class Split:
    """The rows that are learned from, and those that are judged by."""

    tasks: tuple[Tensor, ...]  # training rows of each task; some may have none
    held: Tensor  # rows to judge by
    held_z: Tensor | None = None  # (m, h) their features, where they are not in the stream's
    held_task: Tensor | None = None  # (m,) and the task with which each could have come
    checkpoints: tuple[int, ...] = ()  # the tasks after which heads are scored, with the last one
    vectors_of: frozenset[str] = frozenset()  # heads whose output vectors are kept there

    @property
    def n(self) -> int:
        """The number of rows that are learned from."""
        return sum(map(len, self.tasks))

    def held_of(self, z: Tensor) -> Tensor:
        """Return the features (m, h) of the rows to judge by."""
        return z[self.held] if self.held_z is None else self.held_z

    def task_in(self, stream: Stream) -> Tensor:
        """Return the task (m,) with which each row to judge by has come."""
        return stream.task_of[self.held] if self.held_task is None else self.held_task


def splits_of(stream: Stream, seed: int = 0, n: int | None = None) -> list[Split]:
    """Hold out a fifth of the rows in each of ``n`` splits; five in a row hold out each row once.

    Of many rows it is less (``MOST_HELD``, ``MOST_LOGITS``). Without ``n`` there is one split, or
    with fewer than 2,000 held-out rows as many as make 2,000 of them, from 5 to 10. Where there are
    enough validation rows, ``advise`` judges by these instead: ``judged_by``.
    """
    task, rows = stream.task_of, stream.rows
    most = min(MOST_HELD, max(FEW, MOST_LOGITS / stream.n_classes))
    part = min(PART, most / len(rows))
    made: list[Split] = []
    wanted = n or 1
    while len(made) < wanted:
        number = len(made)
        held = hold_out(
            stream.y[rows],
            task[rows],
            None if stream.group is None else stream.group[rows],
            part=part,
            turn=number,
            seed=seed + number // round(1 / PART),
        )
        made.append(_split(stream, rows[held]))
        if n is None and not number and (rows_held := len(made[0].held)) < FEW:
            wanted = min(MOST_SPLITS, max(5, math.ceil(FEW / rows_held)))
    return made


def judged_by(stream: Stream, rows: FeatureSet) -> tuple[Stream, Split]:
    """Return a split that learns all rows of a stream and is judged by others, and its stream.

    The other rows come after those of the stream; each counts from the task that first has its
    class. A column that they lack is −1 for them.
    """
    n, m = len(stream.y), len(rows)
    y = rows.labels[stream.label]
    columns = {
        name: torch.cat([own, rows.labels.get(name, torch.full((m,), -1))])
        for name, own in stream.columns.items()
    }
    group = stream.group
    if group is not None:
        # Without the column, each of the other rows is a source of its own.
        alone = int(group.max()) + 1 + torch.arange(m)
        group = torch.cat([group, rows.labels.get(stream.source or "", alone)])
    whole = replace(
        stream,
        y=torch.cat([stream.y, y]),
        group=group,
        columns=columns,
        n_classes=max(stream.n_classes, 1 + int(y.max())),
    )
    arrival = torch.full((whole.n_classes,), stream.n_tasks - 1)
    for task, own in reversed(list(enumerate(stream.tasks))):
        arrival[stream.y[own]] = task
    return whole, Split(stream.tasks, torch.arange(n, n + m), rows.z, arrival[y])


def _split(stream: Stream, held: Tensor) -> Split:
    if not len(held):
        why = "each class has a single row" if stream.group is None else "one source holds them all"
        raise DataError(f"no rows can be held out to compare heads on: {why}")
    out = torch.zeros(len(stream.y), dtype=torch.bool)
    out[held] = True
    return Split(tuple(rows[~out[rows]] for rows in stream.tasks), held)
