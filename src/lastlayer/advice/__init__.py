"""Advice: which head suits a stream, judged on rows held out of its training data."""

from lastlayer.advice.answer import Advice, advise

__all__ = ["Advice", "advise"]
