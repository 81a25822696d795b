"""End to end with replay: whole networks on a stream of image tasks, one or many at once."""

from lastlayer.training.replay.image_pool import ImagePool, make_image_pool
from lastlayer.training.replay.learner import Network
from lastlayer.training.replay.options import AUTHORS, TrainingOptions
from lastlayer.training.replay.train import ReplayRules, train_replay
from lastlayer.training.replay.trainee import TaskEnd

__all__ = [
    "AUTHORS",
    "ImagePool",
    "Network",
    "ReplayRules",
    "TaskEnd",
    "TrainingOptions",
    "make_image_pool",
    "train_replay",
]
