"""Features of frozen backbones: in memory, in files, and from tables of other programs."""

from lastlayer.data.feature_set import FeatureSet
from lastlayer.data.features import Features, Origin
from lastlayer.data.load import load_features

__all__ = ["FeatureSet", "Features", "Origin", "load_features"]
