"""The command line as ``python -m lastlayer``."""

from lastlayer.cli import main

main()
