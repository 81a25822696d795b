"""The scikit-learn face of heads, its file, and fit, predict, forget and merge for files."""

from lastlayer.estimator.head_classifier import HeadClassifier

__all__ = ["HeadClassifier"]
