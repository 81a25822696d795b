"""The version of lastlayer: pyproject.toml, files and pages read it here."""

__version__ = "0.3.0"
