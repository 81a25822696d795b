"""Features of frozen backbones: in memory, in files, from arrays, and from images."""

from lastlayer.features.backbones.catalogue import BACKBONES, load_backbone
from lastlayer.features.data import Features, Origin
from lastlayer.features.datasets.catalogue import DATASETS, read_images
from lastlayer.features.datasets.images import Images, ImageSet
from lastlayer.features.extraction.extract import extract
from lastlayer.features.feature_set import FeatureSet
from lastlayer.features.load import load_features

__all__ = [
    "FeatureSet", "Features", "Origin", "load_features",
    "ImageSet", "Images", "DATASETS", "read_images", "BACKBONES", "load_backbone", "extract",
]  # fmt: skip
