"""What one question of a watch remembers: its bets, and what happened since their last low."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from lastlayer.heads.watch_reference import packed, unpacked
from lastlayer.live.watch.betting import Array, Promise, bet


class Course(NamedTuple):
    """How rows went, one after the other."""

    evidence: Array  # (n,) the wealth of a row's group after it, money put aside included
    change: Array  # (n,) how much of that the row has brought


@dataclass(frozen=True, eq=False)
class Wealth:
    """Bets on rows of several groups (of one, or of every class); constant in size.

    The log-wealth of somebody who always bets as all bets together do has its last low where the
    change most likely was: before, bets lose; afterwards they win.
    """

    stakes: Array  # (g, d, k) what each bet has
    rows: Array  # (g,) how many rows of a group there were
    path: Array  # (g,) the log-wealth
    low: Array  # (g,) its lowest
    since: Array  # (g,) after which row of the group that was
    sums: Array  # (g, d) of what was bet on, since then

    @classmethod
    def of(cls, groups: int, share: Array) -> Self:
        """Return what there is before the first row, for as many bets as ``share`` (d, k) has."""
        zeros, whole = np.zeros(groups), np.zeros(groups, dtype=np.int64)
        stakes, sums = np.zeros((groups, *share.shape)), np.zeros((groups, len(share)))
        return cls(stakes, whole, zeros, zeros, whole, sums)

    def grown(self, groups: int) -> Self:
        """Return it with room for more groups."""
        more = groups - len(self.rows)
        return replace(self, **{
            field.name: np.concatenate([old, np.zeros((more, *old.shape[1:]), old.dtype)])
            for field in fields(self) if (old := getattr(self, field.name)) is not None
        })  # fmt: skip

    def evidence(self, promise: Promise) -> Array:
        """Return the wealth of each group (g,), with the money that is put aside."""
        found: Array = self.stakes.sum(axis=(1, 2)) + promise.aside(self.rows)
        return found

    def take(
        self, x: Array, group: Array, p: Array, share: Array, promise: Promise
    ) -> tuple[Self, Course]:
        """Bet on rows x (n, d) of groups (n,), and return what is remembered then.

        x is in [0, 1], and p (g, d) is how large it is on average at most. New money, as much as
        the promise says, is divided among bets by ``share`` (d, k).
        """
        if not len(x):
            return self, Course(np.zeros(0), np.zeros(0))
        used, place, nth, size = _by_group(group)
        # Groups with the most rows first: those without any more are left out as it goes on.
        rows = np.full((size[0], len(used), x.shape[1]), np.nan)
        rows[nth, place] = x
        there = np.arange(len(rows))[:, None] < size
        number = self.rows[used] + np.arange(1, len(rows) + 1)[:, None]
        money = np.where(there, promise.money(number), 0)
        aside = promise.aside(number)
        wealth, stakes = np.zeros(money.shape), self.stakes[used]
        for begin, end, groups in _stretches(size):
            part = np.s_[begin:end, :groups]
            wealth[part], stakes[:groups] = bet(
                stakes[:groups], money[part], share, rows[part], p[used[:groups]]
            )
        first = self.stakes[used].sum(axis=(1, 2))
        before = np.concatenate([first[None], wealth[:-1]])
        made = self._remember(used, stakes, there, rows, _growth(wealth, before + money, there))
        evidence = wealth + aside
        change = evidence - before - promise.aside(number - 1)
        return made, Course(evidence[nth, place], change[nth, place])

    def _remember(self, used: Array, stakes: Array, there: Array, x: Array, growth: Array) -> Self:
        """Return it after rows (n, g, d) of some groups, whose log-wealth has grown so much."""
        path = self.path[used] + growth.cumsum(axis=0)
        ahead = np.concatenate([self.low[used][None], np.where(there, path, np.inf)])
        at = ahead.argmin(axis=0)  # 0: the low was before these rows
        n, sums = there.sum(axis=0), np.nan_to_num(x).cumsum(axis=0)
        own = np.arange(len(used))
        until = sums[np.maximum(at, 1) - 1, own]
        new = {
            "stakes": stakes,
            "rows": self.rows[used] + n,
            "path": path[-1],
            "low": ahead[at, own],
            "since": np.where(at > 0, self.rows[used] + at, self.since[used]),
            "sums": sums[-1] + np.where(at[:, None] > 0, -until, self.sums[used]),
        }
        return replace(self, **{
            name: _with(getattr(self, name), used, value) for name, value in new.items()
        })  # fmt: skip

    def joined(self, other: Self, weight: float) -> Self:
        """Return the bets of two watches over different rows, each stake times a weight.

        What happened since the last low is that of the one that has risen more since its own.
        """
        mine = self.path - self.low >= other.path - other.low
        rows = self.rows + other.rows
        return replace(
            self,
            stakes=weight * (self.stakes + other.stakes),
            rows=rows,
            path=np.where(mine, self.path, other.path),
            low=np.where(mine, self.low, other.low),
            since=rows - np.where(mine, self.rows - self.since, other.rows - other.since),
            sums=np.where(mine[:, None], self.sums, other.sums),
        )

    @cached_property
    def document(self) -> dict[str, Any]:
        """What the file of a head keeps of it; made once, since it never changes."""
        return {field.name: packed(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def read(cls, document: Mapping[str, Any], share: Array) -> Self:
        """Read what ``document`` returned; ValueError where it cannot have."""
        found = cls(**{name: unpacked(text) for name, text in document.items()})
        like = cls.of(len(found.rows), share)
        for field in fields(cls):
            if getattr(found, field.name).shape != getattr(like, field.name).shape:
                raise ValueError(f"{field.name} does not fit")
        return found


def _by_group(group: Array) -> tuple[Array, Array, Array, Array]:
    """Return the groups that occur, the most frequent first, and of each row its place among them.

    Then which row of its group each is, and how many rows each of these groups has.
    """
    found, own, size = np.unique(group, return_inverse=True, return_counts=True)
    order = np.argsort(-size, kind="stable")
    place_of = np.empty(len(found), dtype=np.int64)
    place_of[order] = np.arange(len(found))
    place, size = place_of[own], size[order]
    begin = size.cumsum() - size
    nth = np.empty(len(group), dtype=np.int64)
    nth[np.argsort(place, kind="stable")] = np.arange(len(group)) - np.repeat(begin, size)
    return found[order], place, nth, size


def _stretches(size: Array) -> list[tuple[int, int, int]]:
    """Return from which to which row how many of the groups, sorted by size, have rows.

    >>> _stretches(np.array([100, 3, 3]))
    [(0, 3, 3), (3, 100, 1)]
    """
    ends = np.unique(size)
    begins = [0, *ends[:-1].tolist()]
    return [(b, e, int((size > b).sum())) for b, e in zip(begins, ends.tolist(), strict=True)]


def _growth(wealth: Array, at_stake: Array, there: Array) -> Array:
    """Return the logarithm of what each row multiplied by whatever was at stake."""
    smallest = np.finfo(np.float64).tiny
    before, after = np.where(there, at_stake, 1), np.where(there, wealth, 1)
    found: Array = np.log(np.maximum(after, smallest)) - np.log(np.maximum(before, smallest))
    return found


def _with(old: Array, used: Array, new: Array) -> Array:
    """Return a copy with some rows replaced."""
    made = old.copy()
    made[used] = new
    return made
