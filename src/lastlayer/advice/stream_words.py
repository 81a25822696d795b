"""The stream in words: what arrives when, what moves, and what is odd."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastlayer.core.names import listed
from lastlayer.core.tensors import row_hashes
from lastlayer.evaluate.stream import Stream

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ALIKE = 0.05  # rows with a near-copy, from which on that is said
SHUFFLES = 199  # of the test whether classes move
FALSE_ALARM = 0.01  # how often it tells of a class that moves where none does
MOVED_ROWS = 10_000  # at most are looked at for it
MOVED_SIZE = 32  # features they are projected to
NEIGHBOURS = 5
AROUND = 20  # neighbours among which a near-copy stands out
CHANCE = 0.01  # of the rows that stand out so without one
ASKED_ROWS = 2_000  # of whose neighbours the labels are looked at
AMONG_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class Description:
    """What a stream is like."""

    kind: str  # "all at once", "incremental", "lifelong" or "mixed"
    presence: NDArray[np.int64]  # (tasks, classes) rows
    returning: tuple[int, ...]  # classes that come in several tasks
    moved: tuple[int, ...] | None  # of them, those shown to move; None: it cannot be tested
    shift: float | None  # how far their means move, typically, in spreads of a class
    duplicates: int  # test rows that are training rows too
    copies: int  # training rows that are there before, with the same label
    conflicting: int  # training rows that are there more than once, with different labels
    odd: tuple[int, ...]  # asked rows whose neighbours all carry another label
    asked: int  # rows whose neighbours were looked at
    near: float  # share of them that have a near-copy
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def describe(stream: Stream, seed: int = 0) -> Description:
    """Describe a stream; the seed decides which rows are looked at, and how they are shuffled.

    >>> import lastlayer as ll
    >>> from lastlayer.evaluate.stream import lay_out
    >>> print(describe(lay_out(ll.load_features("cifar10"), "cifar10")).sentences[0])
    5 tasks, each with 2 new classes; none return: the stream is incremental.
    """
    presence = _presence(stream)
    returning = tuple(np.flatnonzero((presence > 0).sum(axis=0) > 1).tolist())
    kind = _kind(presence)
    moved, shift = moved_classes(stream, returning, seed) if returning else ((), None)
    duplicates, copies, conflicting = _duplicates(stream)
    odd, asked, near = look_around(stream, seed)
    if stream.group is not None:
        near = 0.0  # rows of one source may be alike: they are held out together
    about = (moved, shift, duplicates, copies, conflicting, odd, asked, near)
    found = Description(kind, presence, returning, *about, sentences=())
    sentences = (
        *_arrivals(found),
        *_movement(found, stream),
        *_balance(found, stream),
        *_oddities(found, stream),
        *stream.notes,
    )
    return replace(found, sentences=tuple(sentences))


def _presence(stream: Stream) -> NDArray[np.int64]:
    counts = [stream.y[rows].bincount(minlength=stream.n_classes) for rows in stream.tasks]
    return torch.stack(counts).numpy()


def _kind(presence: NDArray[np.int64]) -> str:
    there = presence > 0
    known = there.any(axis=0)
    if len(presence) == 1:
        return "all at once"
    if (there[:, known].sum(axis=0) == 1).all():
        return "incremental"
    return "lifelong" if there[:, known].all() else "mixed"


def moved_classes(
    stream: Stream, returning: Sequence[int], seed: int = 0
) -> tuple[tuple[int, ...] | None, float | None]:
    """Test which returning classes have moved between tasks by more than chance.

    The tasks of a class's rows (or of its sources, where rows have one) are shuffled; a class has
    moved if its means differ by more than the largest difference of any class in all but 1 % of
    the shuffles. Also returns how far they move: the typical distance of a task's mean from the
    class's, beyond chance, as a multiple of the class's spread.
    """
    z, cell, task = _samples(stream, returning, seed)
    if not len(z):
        return None, None
    # The mean squared distance of a class's rows from its mean: shuffling tasks leaves it alone.
    spread = _apart(z, cell, np.arange(len(z)))
    known = spread > 0
    if not known.any():
        return None, None
    random = np.random.default_rng(seed)
    shuffled = [
        _apart(z, cell, task[np.lexsort((random.random(len(cell)), cell))]) for _ in range(SHUFFLES)
    ]
    ratio = _apart(z, cell, task)[known] / spread[known]
    chance = np.stack(shuffled)[:, known] / spread[known]
    # Classes of few rows vary more by chance: each is measured by its own shuffles.
    scale = np.maximum(chance.std(axis=0), 1e-12)
    most = ((chance - chance.mean(axis=0)) / scale).max(axis=1)
    limit = np.sort(most)[-max(1, round(FALSE_ALARM * (SHUFFLES + 1)))]
    far = (ratio - chance.mean(axis=0)) / scale > limit
    classes = np.asarray(returning)[: len(known)][known]
    beyond = np.sqrt(np.maximum(ratio - chance.mean(axis=0), 0))
    return tuple(classes[far].tolist()), float(np.median(beyond))


def _samples(
    stream: Stream, returning: Sequence[int], seed: int
) -> tuple[Floats, Integers, Integers]:
    """Return what is shuffled, rows or means of sources, by class: features, class and task."""
    random = np.random.default_rng(seed)
    y, task = stream.y.numpy(), stream.task_of.numpy()
    place = np.full(stream.n_classes, -1)
    place[list(returning)] = np.arange(len(returning))
    rows = np.flatnonzero((task >= 0) & (place[y] >= 0))
    if len(rows) > MOVED_ROWS and stream.group is None:
        rows = np.sort(random.choice(rows, MOVED_ROWS, replace=False))
    found = stream.z[torch.from_numpy(rows)].float()
    if found.shape[1] > MOVED_SIZE:
        generator = torch.Generator().manual_seed(seed)
        found = (
            found @ torch.linalg.qr(torch.randn(found.shape[1], MOVED_SIZE, generator=generator))[0]
        )
    z, cell, of_task = found.double().numpy(), place[y[rows]], task[rows]
    if stream.group is not None:
        keys = np.stack([stream.group.numpy()[rows], cell, of_task], axis=1)
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        _, z, _ = _means(z, inverse.reshape(-1))
        cell, of_task = unique[:, 1], unique[:, 2]
    order = np.argsort(cell, kind="stable")
    return z[order], cell[order], of_task[order]


def _means(z: Floats, key: Integers) -> tuple[Integers, Floats, Integers]:
    """Return the keys there are, ascending, the mean of the rows of each, and how many they are."""
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    counts = np.diff(starts, append=len(key))
    return key[order][starts], np.add.reduceat(z[order], starts, axis=0) / counts[:, None], counts


def _apart(z: Floats, cell: Integers, part: Integers) -> Floats:
    """Return each class's mean squared distance of the means of its parts from its own mean."""
    n_parts = int(part.max()) + 1
    keys, means, counts = _means(z, cell * n_parts + part)
    classes, whole, n = _means(z, cell)
    of_class = np.searchsorted(classes, keys // n_parts)
    squares = counts * np.square(means - whole[of_class]).sum(axis=1)
    found = np.zeros(int(cell.max()) + 1)
    found[classes] = np.bincount(of_class, squares) / n
    return found


def _duplicates(stream: Stream) -> tuple[int, int, int]:
    """Count test rows that are training rows too, copies of training rows, and those relabelled."""
    train = row_hashes(stream.z)[stream.rows.numpy()]
    y = stream.y[stream.rows].numpy()
    order = np.lexsort((y, train))
    same = train[order][1:] == train[order][:-1]
    alike = y[order][1:] == y[order][:-1]
    copies, conflicting = int((same & alike).sum()), int((same & ~alike).sum())
    if stream.test_z is None:
        return 0, copies, conflicting
    return int(np.isin(row_hashes(stream.test_z), train).sum()), copies, conflicting


def look_around(stream: Stream, seed: int = 0) -> tuple[tuple[int, ...], int, float]:
    """Look at the nearest neighbours of rows drawn from a stream.

    Returns the rows whose nearest neighbours all have another label, how many were looked at, and
    the share of them that have a near-copy: a neighbour that much nearer than the others that it
    happens to one row in a hundred where rows are spread evenly, in as many dimensions as these.
    """
    random = torch.Generator().manual_seed(seed)
    rows = stream.rows[torch.randperm(len(stream.rows), generator=random)]
    among, asked = rows[:AMONG_ROWS], rows[:ASKED_ROWS]
    if len(among) <= NEIGHBOURS:
        return (), 0, 0.0
    z = stream.z[among].double()
    square = z.square().sum(1)
    odd, far = [], []
    for start in range(0, len(asked), 256):
        own = torch.arange(start, min(start + 256, len(asked)))
        distance = square - 2 * z[own] @ z.T
        distance[torch.arange(len(own)), own] = torch.inf
        found = distance.topk(min(AROUND, len(among) - 1), largest=False)
        nearest = found.indices[:, :NEIGHBOURS]
        other = (stream.y[among][nearest] != stream.y[asked][own, None]).all(dim=1)
        odd.append(asked[own[other]])
        far.append((found.values + square[own, None]).clamp(min=0).sqrt())
    return tuple(sorted(torch.cat(odd).tolist())), len(asked), _near(torch.cat(far))


def _near(far: Tensor) -> float:
    """Return the share of near-copies by the distances (n, 2 k) of neighbours, ascending.

    Spread evenly in D dimensions, the k-th distance over the last, to the power of D, has the
    median ½; the first over the k-th is the least of k − 1 uniform numbers.
    """
    k = far.shape[1] // 2
    if k < 2:
        return 0.0
    first, middle, last = far[:, 0], far[:, k - 1], far[:, 2 * k - 1].clamp(min=1e-300)
    usual = min(max(float((middle / last).median()), 1e-9), 1 - 1e-9)
    dimensions = math.log(0.5) / math.log(usual)
    limit = (1 - (1 - CHANCE) ** (1 / (k - 1))) ** (1 / dimensions)
    return max(float((first < limit * middle).double().mean()) - CHANCE, 0.0)


def _arrivals(found: Description) -> list[str]:
    there = found.presence > 0
    n_tasks, n_classes = len(there), int(there.any(axis=0).sum())
    if n_tasks == 1:
        return [f"One task with all {n_classes} classes: everything arrives at once."]
    first = there.argmax(axis=0)[there.any(axis=0)]
    new = np.bincount(first, minlength=n_tasks)
    if found.kind == "lifelong":
        return [f"{n_tasks} tasks, each with all {n_classes} classes: the stream is lifelong."]
    fresh = f"{new[0]}" if (new == new[0]).all() else f"{new.min()} to {new.max()}"
    if found.kind == "incremental":
        return [
            f"{n_tasks} tasks, each with {fresh} new {_plural(new.max(), 'class', 'classes')}; "
            "none return: the stream is incremental."
        ]
    later = int(new[1:].sum())
    return [
        f"{n_tasks} tasks; the first brings {new[0]} of {n_classes} classes, later ones {later} "
        f"more, and {len(found.returning)} return in other tasks: the stream is mixed."
    ]


def _plural(n: float, one: str, many: str) -> str:
    return one if n == 1 else many


def _movement(found: Description, stream: Stream) -> list[str]:
    if not found.returning:
        return []
    what = "sources" if stream.group is not None else "rows"
    rate = f"{100 * FALSE_ALARM:.0f} % false alarms: {what} shuffled between tasks {SHUFFLES} times"
    if found.moved is None:
        return ["Whether returning classes move cannot be tested: their features do not vary."]
    if not found.moved:
        return [
            f"No returning class is shown to move between tasks ({rate}): the tasks look alike."
        ]
    return [
        f"{len(found.moved)} of {len(found.returning)} returning classes move between tasks "
        f"({rate}); the mean of a class in a task is typically {found.shift:.2f} times the class's "
        "spread away from its overall mean."
    ]


def _of_each(seen: NDArray[np.int64]) -> str:
    """Say how many rows classes have.

    >>> _of_each(np.array([40, 40])), _of_each(np.array([36, 44]))
    ('40 of each class', 'from 36 to 44 of a class (median 40)')
    """
    if seen.min() == seen.max():
        return f"{seen.min()} of each class"
    return f"from {seen.min()} to {seen.max()} of a class (median {np.median(seen):g})"


def _balance(found: Description, stream: Stream) -> list[str]:
    counts = found.presence.sum(axis=0)
    seen = counts[counts > 0]
    sentences = [f"{int(seen.sum())} training rows, {_of_each(seen)}."]
    if seen.max() >= 10 * seen.min():
        sentences.append(
            f"The largest class has {seen.max() / seen.min():.0f} times the rows of the smallest: "
            "accuracies count rows, so large classes weigh more."
        )
    single = np.flatnonzero(counts == 1)
    if len(single):
        sentences.append(
            f"{len(single)} {_plural(len(single), 'class has', 'classes have')} a single row "
            f"({listed([stream.names[c] for c in single])}): learned from but never judged by, and "
            "the mean of such a class is that row."
        )
    never = np.flatnonzero(counts == 0)
    if len(never):
        sentences.append(
            f"{len(never)} {_plural(len(never), 'class has', 'classes have')} no training row "
            f"({listed([stream.names[c] for c in never])}), so no head can know "
            f"{_plural(len(never), 'it', 'them')}."
        )
    return sentences


def _oddities(found: Description, stream: Stream) -> list[str]:
    sentences = []
    if found.duplicates and stream.test_z is not None:
        sentences.append(
            f"{found.duplicates} of {len(stream.test_z)} test rows are also training rows: test "
            "accuracies are too optimistic."
        )
    if found.copies:
        copies = _plural(
            found.copies, "row is an exact copy of another", "rows are exact copies of others"
        )
        sentences.append(
            f"{found.copies} training {copies}, so held-out rows are easier than new ones: drop "
            "the copies, or name the source of each row with --group."
        )
    if found.near >= ALIKE:
        sentences.append(
            f"{100 * found.near:.0f} % of the rows have a near-copy, a row much nearer than all "
            "others: held-out rows are easier than new ones, unless --group names where rows "
            "come from."
        )
    if found.conflicting:
        occur = _plural(found.conflicting, "row occurs", "rows occur")
        sentences.append(f"{found.conflicting} training {occur} again with another label.")
    if found.odd:
        of = "" if found.asked == len(stream.rows) else " checked"
        sentences.append(
            f"{len(found.odd)} of {found.asked} rows{of} have {NEIGHBOURS} nearest neighbours that "
            f"all have another label (rows {listed(list(map(str, found.odd)))}): wrong labels, or "
            "classes that overlap."
        )
    return sentences
