"""The report: every figure and table of the paper from the results of a study, without torch."""

from lastlayer.report.published import agree, beside, published
from lastlayer.report.writing import write

__all__ = ["write", "agree", "beside", "published"]
