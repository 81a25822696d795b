"""The command line: thin, one function per command."""

from lastlayer.cli import (  # noqa: F401, I001  (they add commands, in the order of --help)
    importing,
    extract,
    show,
    advise,
    study,
    catalogue,
    fit,
    predict,
    calibrate,
    forget,
    export,
    run,
    report,
)
from lastlayer.cli.app import app, main

__all__ = ["app", "main"]
