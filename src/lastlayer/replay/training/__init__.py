"""End to end with replay: whole networks on a stream of image tasks, one or many at once."""

from lastlayer.replay.training.image_pool import ImagePool, make_image_pool
from lastlayer.replay.training.learner import Network
from lastlayer.replay.training.train import ReplayRules, TaskEnd, train_replay
from lastlayer.replay.training.training_options import AUTHORS, TrainingOptions

__all__ = [
    "AUTHORS", "ImagePool", "Network", "ReplayRules", "TaskEnd", "TrainingOptions",
    "make_image_pool", "train_replay",
]  # fmt: skip
