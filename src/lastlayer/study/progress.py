"""A progress bar with the time left, on terminals only."""

from collections.abc import Iterator
from contextlib import contextmanager

from lastlayer.study.meter import Tell


@contextmanager
def bar(title: str, show: bool) -> Iterator[Tell | None]:
    """Give what draws the progress on stderr, or None where it is not to be shown."""
    if not show:
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  (for those who want to see it)
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as drawn:
        task = drawn.add_task(title, total=None)
        yield lambda done, total: drawn.update(task, completed=done, total=total)
