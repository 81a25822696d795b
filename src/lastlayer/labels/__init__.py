"""Labels: which are wrong, and which row to label next."""

from lastlayer.labels.findings import Audit, audit

__all__ = ["Audit", "audit"]
