"""What a study shows while it runs: a live view on a terminal, else a line now and then."""

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
from lastlayer.core.progress import Bar

if TYPE_CHECKING:
    from lastlayer.study import Outcome


class View:
    """Counts runs as they are saved, and draws them on stderr; with ``quiet`` it only counts."""

    def __init__(self, quiet: bool) -> None:
        self.planned = self.kept = self.failed = 0
        self._finals: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._console = Console(stderr=True, highlight=False, quiet=quiet, markup=False)
        self._bar = Bar(console=self._console)
        self._live = Live(console=self._console, get_renderable=self._draw, transient=True)
        self._live_wanted = self._console.is_terminal and not quiet

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

    def progress(self, done: float, total: float) -> None:
        """Record the work done; called from any thread."""
        self._bar.title = f"{self.kept} of {count(self.planned, 'run')}"
        self._bar(done, total)

    def take(self, outcomes: "list[Outcome]") -> None:
        """Record the runs that were saved, and those that failed."""
        from lastlayer.study import Result

        for outcome in outcomes:
            if isinstance(outcome, Result):
                self.kept += 1
                # A head that diverged is no candidate.
                if isfinite(outcome.final):
                    run = outcome.run
                    self._finals[run.place][run.candidate].append(outcome.final)
            else:
                self.failed += 1

    def wait(self) -> None:
        """Print that another process is writing."""
        self._console.print("another process is writing there: waiting for it to finish")

    def _draw(self) -> Group:
        best = Table("made now", "best head so far", "accuracy", box=None)
        for scenario, heads in list(self._finals.items())[-12:]:
            head, finals = max(list(heads.items()), key=lambda item: fmean(item[1]))
            best.add_row(Text(scenario), Text(head), f"{100 * fmean(finals):.1f} %")
        return Group(self._bar.drawn, best)
