"""From images and texts to features: data sets, frozen backbones, extraction part by part."""

from lastlayer.extraction.backbones.by_name import BACKBONES, load_backbone
from lastlayer.extraction.datasets.images import Images, ImageSet
from lastlayer.extraction.datasets.readers import DATASETS, read_images
from lastlayer.extraction.from_images import extract

__all__ = ["ImageSet", "Images", "DATASETS", "read_images", "BACKBONES", "load_backbone", "extract"]
