"""The report: published numbers beside ours; it never needs torch."""

from lastlayer.report.published import agree, beside, published, tally

__all__ = ["agree", "beside", "published", "tally"]
