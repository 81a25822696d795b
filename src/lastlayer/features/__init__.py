"""Features of frozen backbones: in memory, in files, from arrays, and from images."""

from lastlayer.features.catalogue import load_features
from lastlayer.features.data import Features, Origin
from lastlayer.features.feature_set import FeatureSet

__all__ = ["FeatureSet", "Features", "Origin", "load_features"]
