"""Advice: which head suits a stream, judged on rows held out of its training data."""

from lastlayer.advice.advise import Advice, advise

__all__ = ["Advice", "advise"]
