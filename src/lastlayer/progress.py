"""The progress of work: one meter that counts it, and one place that draws it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

EARLY = 0.05  # of the work: its speed need not be that of the rest

Tell = Callable[[int, int], None]  # takes the work done, and all there is


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
        self, total: int = 0, tell: Tell | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.done, self.total = 0, total
        self._tell, self._clock, self._lock = tell, clock, Lock()
        self._first: tuple[int, float] | None = None
        self._last = 0.0

    def add(self, amount: int) -> None:
        """Count work that was just done, never beyond the total."""
        with self._lock:
            self._set(min(self.done + amount, self.total))

    def reach(self, done: int, total: int | None = None) -> None:
        """Set how much is done by now, and the total."""
        with self._lock:
            if total is not None and total != self.total:  # other work, which takes another time
                self.total, self._first = total, None
            self._set(done)

    def drop(self, amount: int) -> None:
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

    def _set(self, done: int) -> None:
        self.done, self._last = done, self._clock()
        if self._first is None:
            self._first = done, self._last
        if self._tell is not None:
            self._tell(self.done, self.total)


@contextmanager
def bar(title: str, show: bool = True, unit: str = "") -> Iterator[Tell | None]:
    """Return a function that draws the progress on stderr; None if that is not a terminal.

    Args:
        title: what stands before the bar.
        show: whether to draw at all.
        unit: what is counted, such as "images": how many there are, and how many a second.
    """
    if not show:
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  (for those who want to see it)

    console = Console(stderr=True)
    with drawn(console, unit, disable=not console.is_terminal) as progress:
        task, meter = progress.add_task(title, total=None, speed="…", left=""), Meter()

        def tell(done: int, total: int) -> None:
            meter.reach(done, total)
            speed, left = f"{meter.speed:.0f}", time_left(meter)
            progress.update(task, completed=done, total=total, speed=speed, left=left)

        yield tell


def drawn(console: "Console", unit: str = "", *, disable: bool = False) -> "Progress":
    """Return rich's progress as all our commands show it: a bar and the time left.

    The field ``left`` says it, by our meter: rich's own goes by the last moments, and swings.
    """
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
    )

    title = TextColumn("{task.description}", markup=False)
    counted = (MofNCompleteColumn(), TextColumn(f"{{task.fields[speed]}} {unit}/s"))
    columns = (title, BarColumn(), *(counted if unit else ()), TextColumn("{task.fields[left]}"))
    return Progress(*columns, console=console, transient=True, disable=disable)


def time_left(meter: Meter) -> str:
    """Return the time left as it is shown beside a bar; nothing if it is not known yet."""
    return "" if meter.left is None else f"{duration(meter.left)} left"


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
