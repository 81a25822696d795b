"""The command line: thin, one function per command."""

from lastlayer.cli import catalogue, data, run, study  # noqa: F401  (each adds its commands)
from lastlayer.cli.app import app, main

__all__ = ["app", "main"]
