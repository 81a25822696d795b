"""Labels: which are wrong, and which row to label next."""

from lastlayer.labels.choosing_rows import next_rows
from lastlayer.labels.findings import Audit, audit

__all__ = ["Audit", "audit", "next_rows"]
