"""The command line: thin, one function per command."""

from lastlayer.cli import (  # noqa: F401  (they add commands)
    advise,
    catalogue,
    data,
    report,
    run,
    study,
)
from lastlayer.cli.app import app, main

__all__ = ["app", "main"]
