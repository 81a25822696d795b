"""How far an extraction has come: images done, how many a second, and the time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


@contextmanager
def image_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Give what draws the progress on stderr, if that is a terminal."""
    from rich.console import Console  # noqa: PLC0415  (keeps --help quick)
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    speed = TextColumn("{task.fields[speed]} images/s")
    words = TextColumn("{task.description}", markup=False)  # names may have brackets in them
    columns = (words, BarColumn(), MofNCompleteColumn(), speed)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=None, speed="…")
        meter = Meter()

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, speed=f"{meter.speed(done):.0f}")

        yield tell


class Meter:
    """Counts images per second; those that were done before do not count.

    >>> clock = iter([10.0, 14.0])
    >>> meter = Meter(lambda: next(clock))
    >>> meter.speed(1000), meter.speed(1400)
    (0.0, 100.0)
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._first: tuple[int, float] | None = None

    def speed(self, done: int) -> float:
        """Give the images per second since the first call, with ``done`` images done by now."""
        now = self._clock()
        if self._first is None:
            self._first = done, now
        images, start = self._first
        return (done - images) / (now - start) if now > start else 0.0
