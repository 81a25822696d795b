"""The program: it knows its commands, and says in one line what goes wrong."""

import os
import sys
import warnings
from typing import Annotated

import typer
from rich.console import Console

from lastlayer import __version__
from lastlayer.errors import LastLayerError

app = typer.Typer(
    help="Output layers for frozen networks whose data keeps changing.",
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
            "--version", callback=_say_version, is_eager=True, help="Say the version and exit."
        ),
    ] = False,
) -> None:
    """Keep every command a subcommand, however many there are."""


def main() -> None:
    """Run the command line; what goes wrong is said in one line, without a traceback."""
    # Threads that wait for each other must sleep, not spin: on a busy machine spinning is many
    # times slower. PyTorch reads this when it is first imported, which the commands do.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        app()
    except (LastLayerError, OSError) as error:
        message = " ".join(f"error: {error}".split())
        Console(stderr=True).print(
            message, style="red", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)
