"""What a study shows while it runs: a live view on a terminal, else a line now and then."""

import time
from collections import defaultdict
from math import isfinite
from statistics import fmean
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lastlayer.cli.text import count

if TYPE_CHECKING:
    from lastlayer.study import Outcome

EVERY = 10.0  # seconds between lines where there is no terminal


class View:
    """Counts runs as they are kept, and draws them on stderr; with ``quiet`` it only counts."""

    def __init__(self, quiet: bool) -> None:
        self.planned = self.kept = self.failed = 0
        self._finals: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._console = Console(stderr=True, highlight=False, quiet=quiet, markup=False)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=self._console)
        self._bar = self._progress.add_task("", total=None)
        self._live = Live(console=self._console, get_renderable=self._draw, transient=True)
        self._live_wanted = self._console.is_terminal and not quiet
        self._last_line = self._began = time.monotonic()
        self._total = 0

    def __enter__(self) -> Self:
        if self._live_wanted:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the screen as it was."""
        if self._live_wanted:
            self._live.stop()

    def start(self, planned: int, kept: int) -> None:
        """Take note of how much there is, and how much of it is there."""
        self.planned, self.kept = planned, kept
        self._began = time.monotonic()
        known = f", {kept} of them there already" if kept else ""
        self._console.print(f"{count(planned, 'run')}{known}")

    def progress(self, done: int, total: int) -> None:
        """Take note of the work done; called from any thread."""
        self._progress.update(self._bar, completed=done, total=total)
        now = time.monotonic()
        if total != self._total:  # networks come after heads, and take another time
            self._total, self._began = total, now
        if not self._live_wanted and now - self._last_line >= EVERY and 0 < done < total:
            self._last_line = now
            left = (now - self._began) * (total - done) / done
            kept = f"{self.kept} of {count(self.planned, 'run')}"
            self._console.print(f"{done / total:4.0%}  {kept}, {duration(left)} left")

    def take(self, outcomes: "list[Outcome]") -> None:
        """Take note of runs that are kept, and of those that failed."""
        from lastlayer.study import Result  # noqa: PLC0415  (keeps --help quick)

        for outcome in outcomes:
            if isinstance(outcome, Result):
                self.kept += 1
                if isfinite(outcome.final):  # a head that diverged is no candidate
                    run = outcome.run
                    self._finals[run.place][run.candidate].append(outcome.final)
            else:
                self.failed += 1

    def wait(self) -> None:
        """Say that another process is at work."""
        self._console.print("another process is writing there: waiting for it to end")

    def _draw(self) -> Group:
        self._progress.update(self._bar, description=f"{self.kept} of {self.planned} runs")
        best = Table("made now", "best head so far", "accuracy", box=None)
        for scenario, heads in list(self._finals.items())[-12:]:
            head, finals = max(list(heads.items()), key=lambda item: fmean(item[1]))
            best.add_row(scenario, head, f"{100 * fmean(finals):.1f} %")
        return Group(self._progress, best)


def duration(seconds: float) -> str:
    """Write a time as one would say it.

    >>> duration(7), duration(33), duration(200), duration(8000)
    ('some seconds', 'about 30 s', 'about 3 min', 'about 2.2 h')
    """
    if seconds < 15:
        return "some seconds"
    if seconds < 90:
        return f"about {10 * round(seconds / 10)} s"
    time = f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"about {time}"
