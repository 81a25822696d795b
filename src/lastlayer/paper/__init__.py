"""Reproducing the paper: its numbers, its claims, and the parts of a report about them."""

from lastlayer.paper.published_numbers import agree, beside, published

__all__ = ["agree", "beside", "published"]
