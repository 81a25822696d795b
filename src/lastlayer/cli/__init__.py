"""The command line: thin, one function per command."""

from lastlayer.cli import (  # noqa: F401, I001  (they add commands, in the order of --help)
    import_,
    extract,
    audit,
    show,
    advise,
    compare,
    list,
    fit,
    predict,
    calibrate,
    watch,
    next,
    forget,
    merge,
    serve,
    export,
    run,
    report,
)
from lastlayer.cli.app import app, main

__all__ = ["app", "main"]
