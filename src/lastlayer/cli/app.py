"""The program: its commands, and errors in one line."""

import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from lastlayer.core.names import printable
from lastlayer.core.panics import keep_from_terminal
from lastlayer.core.version import __version__
from lastlayer.errors import LastLayerError

# The verbs by what one does, in the order in which --help shows them.
DATA, CHOOSE, USE, STUDY = "Data", "Choose a head", "Use it", "Study"

app = typer.Typer(
    help="Output layers for frozen networks whose data keep changing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _say_version(asked: bool) -> None:
    if asked:
        print(f"lastlayer {__version__}")
        raise typer.Exit


@app.callback()
def _lastlayer(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Keep every command a subcommand, however many there are."""


REPORT = (
    "this is a bug in lastlayer: please report it with the command that you typed; "
    "set LASTLAYER_DEBUG=1 to see the traceback"
)
MISTAKE = 70  # exit code of a bug in the program (sysexits.h); 1: wrong input, 2: wrong usage
INTERRUPTED = 130


def main() -> None:
    """Run the command line; errors are printed in one line, without a traceback."""
    # Threads that wait for each other must sleep, not spin: on a busy machine spinning is many
    # times slower. PyTorch reads this when it is first imported, which the commands do.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # polars would keep memory that it no longer needs for seconds; tables are read piece by piece.
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    for name in ("stdout", "stderr"):
        # None where it was closed before we began (`>&-`): then there is nobody to tell.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        _write_anything(getattr(sys, name))
    keep_from_terminal()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a reader that has gone is noticed
    except BaseException as error:
        error = _interrupt(error) or error
        if isinstance(error, SystemExit | GeneratorExit) or os.environ.get("LASTLAYER_DEBUG"):
            raise
        sys.exit(_end(error))


@contextmanager
def stopping(outcome: str | Callable[[], str], *, at_once: bool = False) -> Iterator[None]:
    """Let Ctrl-C say, after "stopped", what became of the work in a block or a command.

    ``at_once`` ends the process there and then, on SIGTERM too: for work in threads that nobody
    needs to wait for, since what is finished is saved.
    """

    def say() -> str:
        return outcome if isinstance(outcome, str) else outcome()

    def end(number: int, _: FrameType | None) -> NoReturn:
        print(f"stopped: {say()}", file=sys.stderr, flush=True)
        os._exit(128 + number)

    stops = (signal.SIGINT, signal.SIGTERM) if at_once else ()
    before = {number: signal.signal(number, end) for number in stops}
    try:
        yield
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(say()) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the Ctrl-C that typer turned into an exit without a word, if it was one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def _write_anything(stream: Any) -> None:
    """Let a stream spell out characters that its encoding lacks, instead of failing."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _end(error: BaseException) -> int:
    """Print what went wrong, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has gone (as with `| head`), so nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, KeyboardInterrupt):
        _say(": ".join(["stopped", *map(str, error.args)]))
        return INTERRUPTED
    if isinstance(error, LastLayerError | OSError):
        _say(f"error: {error}")
        return 1
    if isinstance(error, MemoryError):
        _say("error: this needs more memory than there is")
        return 1
    _say(f"error: {type(error).__name__}: {error}; {REPORT}")
    return MISTAKE


def _say(message: str) -> None:
    line = printable(" ".join(message.split()))
    Console(stderr=True).print(line, style="red", markup=False, highlight=False, soft_wrap=True)
