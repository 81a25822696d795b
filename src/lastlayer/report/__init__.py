"""The report: every figure and table of a study from its results, without torch."""

from lastlayer.report.writing import write

__all__ = ["write"]
