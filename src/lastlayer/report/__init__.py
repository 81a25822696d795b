"""The report: published numbers beside ours; it never needs torch."""

from lastlayer.report.published import agree, beside, published

__all__ = ["agree", "beside", "published"]
