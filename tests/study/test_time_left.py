"""The time left of a study: it counts what runs cost, and hardly ever grows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lastlayer.core.progress import Meter
from lastlayer.scenarios.spec import ScenarioSpec
from lastlayer.study.execute import make_heads
from lastlayer.study.run import Run, Work
from small_data import small_data


@dataclass(frozen=True)
class Piece:
    """A unit of runs: what it should take, what it takes, and how often it reports."""

    forecast: float
    seconds: float
    reports: int


# The plan quick as it was forecast and as it ran: three streams, and what is small.
QUICK = (
    [Piece(10.4, 9.9, 5), Piece(7.8, 8.4, 5), Piece(2.2, 2.4, 5), Piece(1.6, 1.8, 25),
     Piece(1.6, 1.3, 25), Piece(2.2, 1.3, 10), Piece(1.1, 0.7, 5), Piece(1.2, 1.3, 15)],
    [Piece(10.5, 11.0, 5), Piece(7.9, 8.6, 5), Piece(3.1, 2.9, 5), Piece(3.6, 3.1, 25),
     Piece(1.8, 1.8, 25), Piece(2.2, 3.6, 10), Piece(1.1, 1.8, 5), Piece(1.5, 1.7, 10)],
    [Piece(14.8, 15.3, 100), Piece(9.7, 12.1, 100), Piece(5.4, 7.7, 500), Piece(5.0, 4.6, 100),
     Piece(1.5, 1.8, 100), Piece(1.5, 1.4, 100), Piece(1.5, 1.0, 100)],
    [Piece(0.5, 1.4, 10), Piece(0.9, 1.4, 10), Piece(0.7, 1.8, 10)],
)  # fmt: skip


def shown(groups: Sequence[Sequence[Piece]], threads: int = 2) -> list[tuple[float, float]]:
    """Return the moments of all reports, and the time left at each, as a study shows it."""
    start, reports = 0.0, list[tuple[float, float]]()
    for group in groups:
        free = [start] * threads
        for piece in sorted(group, key=lambda piece: -piece.forecast):
            thread = free.index(min(free))
            each = piece.seconds / piece.reports
            reports += [
                (free[thread] + each * (n + 1), piece.forecast / piece.reports)
                for n in range(piece.reports)
            ]
            free[thread] += piece.seconds
        start = max(free)
    now, found = 0.0, []
    total = sum(piece.forecast for group in groups for piece in group)
    meter = Meter(round(1e9 * total), clock=lambda: now)
    meter.reach(0)
    for now, work in sorted(reports):
        meter.add(round(1e9 * work))
        if meter.left is not None:
            found.append((now, meter.left))
    return found


@pytest.mark.parametrize("slower", [1.0, 3.0], ids=["an idle machine", "a busy machine"])
def test_it_never_grows_for_more_than_a_few_seconds(slower: float) -> None:
    groups = [[Piece(p.forecast, slower * p.seconds, p.reports) for p in g] for g in QUICK]
    least = float("inf")
    for _, left in shown(groups):
        assert left <= least + 3 * slower
        least = min(least, left)


def test_it_is_right_from_the_first_third_on() -> None:
    found = shown(QUICK)
    end = found[-1][0]
    late = [(now, left) for now, left in found if now > end / 3]
    assert max(abs(now + left - end) for now, left in late) < 0.15 * end


def test_work_is_counted_by_what_it_costs() -> None:
    """A head behind a map costs many times as much as one that keeps means."""
    data = {"data": small_data()}
    runs = [Run("data", ScenarioSpec.parse("incremental:3"), name)
            for name in ("mean", "random_slda")]  # fmt: skip
    told: list[tuple[int, int]] = []
    work = Work(runs, data, lambda run: False, "cpu", Path(), lambda *now: told.append(now))
    for (result,) in make_heads(work, analyse=False):
        share = told[-1][0] / told[-1][1]
        assert (share > 0.9) == (len(told) > 1), "the costliest unit comes first"
        assert result.run.head == "random_slda" or share == 1
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1]
