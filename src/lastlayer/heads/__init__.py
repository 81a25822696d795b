"""Heads: what learns from a stream. ``make_head`` makes one by the name on its card."""

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from lastlayer.catalogue.head_cards import card_of, split_name
from lastlayer.core.checks import choice, kind_of
from lastlayer.errors import ArgumentError, FileFormatError, OptionError
from lastlayer.heads.calibration import Calibration
from lastlayer.heads.gradient.gradient_head import GradientHead
from lastlayer.heads.head import Head, Preset
from lastlayer.heads.head_file import HeadFile, check_state, put_back, read_head
from lastlayer.heads.maps.feature_map import FeatureMap, make_map
from lastlayer.heads.maps.random_heads import RandomRidgeHead, RandomSldaHead
from lastlayer.heads.neighbours.kernel_ridge import KernelRidgeHead
from lastlayer.heads.neighbours.knn import KnnHead
from lastlayer.heads.neighbours.median import MedianHead
from lastlayer.heads.records import RECORDS
from lastlayer.heads.statistics.mean import MeanHead
from lastlayer.heads.statistics.qda import QdaHead
from lastlayer.heads.statistics.ridge import RidgeHead
from lastlayer.heads.statistics.sampled_linear import SampledLinearHead
from lastlayer.heads.statistics.slda import SldaHead


def make_head(
    name: str,
    in_features: int,
    n_classes: int = 0,
    *,
    mask: str | None = None,
    preset: Preset = "exact",
    **options: Any,
) -> Head:
    """Make a head by its name; its mask is part of the name ("cosine+single") or an argument.

    Args:
        name: one of ``lastlayer.catalogue.HEADS``.
        in_features: the size of a feature vector.
        n_classes: classes known beforehand; more may arrive.
        mask: "none", "single" or "group"; heads trained by gradient only.
        preset: "exact", or "paper" for the paper's method with its quirks; heads that are not the
            paper's have no presets, and are the same with either.
        **options: of that head, e.g. ``lr=0.1``, ``shrinkage=1e-3``, ``k=7``.

    >>> make_head("mean", in_features=64).passes
    1
    """
    for what, value in (("name", name), ("mask", mask)):
        if not isinstance(value, str) and not (what == "mask" and value is None):
            raise ArgumentError(f"the {what} of a head must be a str, got {kind_of(value)}")
    base, found = split_name(name, mask)
    known = options_of(base)
    for wrong in options.keys() - set(known):
        raise OptionError(
            f"head '{base}' has no option '{wrong}'; there are: {', '.join(known) or 'none'}"
        )
    choice(preset, ("exact", "paper"), "preset")
    if card_of(base).by_gradient:
        options["mask"] = found
    if "preset" in signature(_maker(base)).parameters:
        options["preset"] = preset
    return _maker(base)(in_features=in_features, n_classes=n_classes, **options)


def options_of(name: str) -> tuple[str, ...]:
    """Return the options of a head beyond its sizes, mask and preset.

    >>> options_of("slda")
    ('shrinkage', 'prior', 'per_class_scatter', 'half_life')
    """
    parameters = signature(_maker(name)).parameters.values()
    options = (p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)
    return tuple(option for option in options if option != "mask")


def _maker(name: str) -> Callable[..., Head]:
    """Return what makes the head of a card."""
    card = card_of(name)
    module, _, class_name = card.home.partition(":")
    made = getattr(import_module(module), class_name)
    return partial(made, *card.arguments, **card.options)


def load_head(path: str | os.PathLike[str]) -> Head:
    """Read a head that ``save`` wrote, or a ``HeadClassifier``.

    Its classes are numbers; ``class_names`` says what they are called, where that is known.
    """
    file = read_head(path)
    if "feature_map" in file.parts:
        raise FileFormatError(
            f"{path} holds a classifier that changes features before its head sees them "
            f"({file.parts['feature_map']}): read it with HeadClassifier.load"
        )
    return head_of(file, path)


def head_of(file: HeadFile, path: str | os.PathLike[str]) -> Head:
    """Make the head that a file describes."""
    try:
        make = partial(make_head, file.name, **{**file.settings, "n_classes": 0})
        check_state(lambda n_classes: make(n_classes=n_classes), file.state)
        head = make()
        head.class_names = file.parts.get("class_names")
        head.load_state_dict(file.state)
        put_back(head, file.solved)
        head.records = {key: file.parts[key] for key in RECORDS if key in file.parts}
        if "calibration" in file.parts:
            head.calibration = Calibration.read(file.parts["calibration"])
    except (TypeError, ValueError, RuntimeError) as error:  # intact, yet not what a head writes
        raise FileFormatError(f"{path} does not hold a head of this version: {error}") from error
    return head


__all__ = [
    "Calibration",
    "FeatureMap",
    "GradientHead",
    "Head",
    "KernelRidgeHead",
    "KnnHead",
    "MeanHead",
    "MedianHead",
    "QdaHead",
    "RandomRidgeHead",
    "RandomSldaHead",
    "RidgeHead",
    "SampledLinearHead",
    "SldaHead",
    "load_head",
    "make_head",
    "make_map",
    "options_of",
]
