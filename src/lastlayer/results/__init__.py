"""The results of a study: one SQLite file, and polars tables of what is in it."""

from lastlayer.results.reading import Data, Study, load_study

__all__ = ["Data", "Study", "load_study"]
