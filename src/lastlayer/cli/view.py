"""What a study shows while it runs: a live view on a terminal, else a line now and then."""

import time
from collections import defaultdict
from math import isfinite
from statistics import fmean
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lastlayer.cli.text import count
from lastlayer.progress import Meter, drawn, time_left

if TYPE_CHECKING:
    from lastlayer.study import Outcome

EVERY = 10.0  # seconds between lines where there is no terminal


class View:
    """Counts runs as they are saved, and draws them on stderr; with ``quiet`` it only counts."""

    def __init__(self, quiet: bool) -> None:
        self.planned = self.kept = self.failed = 0
        self._finals: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._console = Console(stderr=True, highlight=False, quiet=quiet, markup=False)
        self._progress = drawn(self._console)
        self._bar = self._progress.add_task("", total=None, left="")
        self._live = Live(console=self._console, get_renderable=self._draw, transient=True)
        self._live_wanted = self._console.is_terminal and not quiet
        self._meter, self._last_line = Meter(), time.monotonic()

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
        """Record how many runs there are, and how many of them are done."""
        self.planned, self.kept = planned, kept
        known = f", {kept} of them already done" if kept else ""
        self._console.print(f"{count(planned, 'run')}{known}")

    def progress(self, done: int, total: int) -> None:
        """Record the work done; called from any thread."""
        self._meter.reach(done, total)
        now, left = time.monotonic(), time_left(self._meter)
        self._progress.update(self._bar, completed=done, total=total, left=left)
        if self._live_wanted or now - self._last_line < EVERY or not left or done == total:
            return
        self._last_line = now
        kept = f"{self.kept} of {count(self.planned, 'run')}"
        self._console.print(f"{done / total:4.0%}  {kept}, {left}")

    def take(self, outcomes: "list[Outcome]") -> None:
        """Record the runs that were saved, and those that failed."""
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
        """Print that another process is writing."""
        self._console.print("another process is writing there: waiting for it to finish")

    def _draw(self) -> Group:
        self._progress.update(self._bar, description=f"{self.kept} of {self.planned} runs")
        best = Table("made now", "best head so far", "accuracy", box=None)
        for scenario, heads in list(self._finals.items())[-12:]:
            head, finals = max(list(heads.items()), key=lambda item: fmean(item[1]))
            best.add_row(Text(scenario), Text(head), f"{100 * fmean(finals):.1f} %")
        return Group(self._progress, best)
