"""The command line: thin, one function per command."""

from lastlayer.cli import catalogue, data, report, run, study  # noqa: F401  (they add commands)
from lastlayer.cli.app import app, main

__all__ = ["app", "main"]
