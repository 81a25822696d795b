"""What waits for a label, without its rows: who waits how long, and which to look at first."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from heapq import nsmallest
from typing import Any

MOST = 100_000  # rows that wait at once; beyond it the oldest goes


@dataclass(frozen=True)
class Open:
    """An input that waits for its label."""

    id: str
    since: float
    note: str | None
    answer: dict[str, Any]

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
        """Return those whose labels would tell the most."""
        with self._lock:
            found = list(self._open.values())
        return nsmallest(count, found, key=lambda one: one.worth)
