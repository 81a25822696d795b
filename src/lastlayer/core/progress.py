"""The progress of work: one meter that counts it, and one place that draws it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

EARLY = 0.05  # of the work: its speed need not be that of the rest
EVERY = 10.0  # seconds between lines where there is no terminal

Tell = Callable[[float, float], None]  # takes the work done, and all there is


class Meter:
    """Counts work, from any thread: how much is done, how fast, and how long it will take.

    What was done before the first call does not count for the speed.

    >>> clock = iter([10.0, 14.0, 15.0])
    >>> meter = Meter(2000, lambda done, total: print(done, "of", total), lambda: next(clock))
    >>> meter.reach(1000)
    1000 of 2000
    >>> meter.add(400)
    1400 of 2000
    >>> meter.speed, meter.left
    (100.0, 6.0)
    """

    def __init__(
        self, total: float = 0, tell: Tell | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.done: float = 0
        self.total = total
        self._tell, self._clock, self._lock = tell, clock, Lock()
        self._first: tuple[float, float] | None = None
        self._last = 0.0

    def add(self, amount: float) -> None:
        """Count work that was just done, never beyond the total."""
        with self._lock:
            self._set(min(self.done + amount, self.total))

    def reach(self, done: float, total: float | None = None) -> None:
        """Set how much is done by now, and the total."""
        with self._lock:
            if total is not None and total != self.total:  # other work, which takes another time
                self.total, self._first = total, None
            self._set(done)

    def drop(self, amount: float) -> None:
        """Remove work that need not be done."""
        with self._lock:
            self.total -= amount

    @property
    def speed(self) -> float:
        """The work done per second."""
        done, start = self._first or (0, 0.0)
        return (self.done - done) / (self._last - start) if self._last > start else 0.0

    @property
    def left(self) -> float | None:
        """The seconds until all is done; None if too little is done yet to tell."""
        done, _ = self._first or (0, 0.0)
        if self.speed <= 0 or self.done - done < EARLY * (self.total - done):
            return None
        return (self.total - self.done) / self.speed

    def _set(self, done: float) -> None:
        self.done, self._last = done, self._clock()
        if self._first is None:
            self._first = done, self._last
        if self._tell is not None:
            self._tell(self.done, self.total)


class Bar:
    """Draws progress on stderr: a bar on a terminal, elsewhere a line now and then.

    It is called with the work done and all there is, from any thread. The time left goes by our
    meter: rich's own goes by the last moments, and swings. The title may change; with a unit, such
    as "images", it shows how many there are, and how many a second.
    """

    def __init__(self, title: str = "", unit: str = "", console: Console | None = None) -> None:
        self.title = title
        self._console = console or Console(stderr=True, highlight=False, markup=False)
        counted = (MofNCompleteColumn(), TextColumn(f"{{task.fields[speed]}} {unit}/s"))
        self.drawn = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            *(counted if unit else ()),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self.drawn.add_task(title, total=None, speed="…", left="")
        self._meter, self._printed = Meter(), monotonic()

    def __call__(self, done: float, total: float) -> None:
        """Draw how much is done of all there is."""
        self._meter.reach(done, total)
        seconds = self._meter.left
        left = "" if seconds is None else f"{duration(seconds)} left"
        about = {"description": self.title, "speed": f"{self._meter.speed:.0f}", "left": left}
        self.drawn.update(self._task, completed=done, total=total, **about)  # type: ignore[arg-type]
        now = monotonic()
        if self._console.is_terminal or not left or done >= total or now < self._printed + EVERY:
            return
        self._printed = now
        self._console.print(f"{done / total:4.0%}  {self.title}, {left}")


@contextmanager
def bar(title: str, show: bool = True, unit: str = "") -> Iterator[Tell]:
    """Yield what draws progress (``Bar``), or does nothing unless it is to be shown."""
    if not show:
        yield lambda done, total: None
        return
    drawing = Bar(title, unit)
    with drawing.drawn:
        yield drawing


def duration(seconds: float) -> str:
    """Return a time as a person would say it.

    >>> duration(7), duration(33), duration(200), duration(8000)
    ('a few seconds', 'about 30 s', 'about 3 min', 'about 2.2 h')
    """
    if seconds < 15:
        return "a few seconds"
    if seconds < 90:
        return f"about {10 * round(seconds / 10)} s"
    time = f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"about {time}"
