"""What waits for a label, without its rows: who waits how long, and which to look at first.

Of each row a few numbers are kept, products with fixed random directions, by which rows that are
alike are known.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from heapq import nsmallest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lastlayer.labels.choosing_rows import TIMES, informative

MOST = 100_000  # rows that wait at once; beyond it the oldest goes
SKETCH = 32  # numbers that are kept of a row
UNLIKE = 100  # rows of a review that are chosen to be unlike each other; further ones are the worst

Sketch = NDArray[np.float32]


@dataclass(frozen=True)
class Open:
    """An input that waits for its label."""

    id: str
    since: float
    note: str | None
    answer: dict[str, Any]
    sketch: Sketch = field(compare=False, repr=False)

    @cached_property
    def worth(self) -> tuple[bool, float]:
        """How early it is to be reviewed: turned away first, then the closest two labels."""
        best = [p for _, p in self.answer["best"]]
        margin = best[0] - (best[1] if len(best) > 1 else 0.0)
        return self.answer["label"] is not None, margin


class Waitlist:
    """Inputs that wait, the oldest first, for so many seconds; any number of threads may ask."""

    def __init__(self, first: Iterable[Open], patience: float, most: int = MOST) -> None:
        self._patience, self._most, self._lock = patience, most, threading.Lock()
        self._open = {one.id: one for one in first}

    def __len__(self) -> int:
        return len(self._open)

    def change(self, new: Iterable[Open], done: Iterable[str]) -> None:
        """Drop those that have their label, and add some."""
        with self._lock:
            for name in done:
                self._open.pop(name, None)
            for one in new:
                self._open[one.id] = one

    def overdue(self, now: float, coming: int = 0) -> list[str]:
        """Return the ids that have waited long enough, or that are too many."""
        with self._lock:
            too_many = len(self._open) + coming - self._most
            ids = []
            for place, one in enumerate(self._open.values()):  # the oldest first
                if place >= too_many and one.since >= now - self._patience:
                    break
                ids.append(one.id)
            return ids

    def review(self, count: int) -> list[Open]:
        """Return those whose labels would tell the most: unsure ones, and none like another."""
        with self._lock:
            found = list(self._open.values())
        found = nsmallest(max(TIMES * min(count, UNLIKE), count), found, key=lambda one: one.worth)
        strange = [one for one in found if not one.worth[0]]
        return [*_unlike(strange), *_unlike(found[len(strange) :])][:count]


def _unlike(found: list[Open]) -> list[Open]:
    """Return rows in another order: a row that is like an earlier one comes late."""
    if len(found) < 2:
        return found
    z = torch.from_numpy(np.stack([one.sketch for one in found]))
    unsure = torch.tensor([1 - one.worth[1] if one.worth[0] else 1.0 for one in found])
    first = informative(z, unsure, min(UNLIKE, len(found))).tolist()
    return [found[place] for place in [*first, *sorted({*range(len(found))}.difference(first))]]


def sketch(row: NDArray[Any]) -> Sketch:
    """Return a few numbers (s,) of a row (1, h), by which it is like or unlike others."""
    z: Sketch = row.astype(np.float32)[0]
    return z if len(z) <= SKETCH else np.asarray(z @ _directions(len(z)), dtype=np.float32)


@cache
def _directions(h: int) -> Sketch:
    random = np.random.default_rng(0)
    return np.asarray(random.standard_normal((h, SKETCH)) / SKETCH**0.5, dtype=np.float32)
