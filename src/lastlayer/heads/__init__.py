"""Heads: what learns from a stream. ``HEADS`` lists them; ``make_head`` makes one by name."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

from lastlayer.errors import OptionError
from lastlayer.files import read_tensors
from lastlayer.heads.gradient.head import GradientHead
from lastlayer.heads.head import Head, Preset
from lastlayer.heads.neighbours.knn import KnnHead
from lastlayer.heads.neighbours.median import MedianHead
from lastlayer.heads.statistics.mean import MeanHead
from lastlayer.heads.statistics.slda import SldaHead
from lastlayer.layers import LAYERS, MASKS
from lastlayer.names import look_up

HEADS: Mapping[str, Callable[..., Head]] = {
    "linear": partial(GradientHead, "linear"),
    "linear_no_bias": partial(GradientHead, "linear_no_bias"),
    "weight_norm": partial(GradientHead, "weight_norm"),
    "original_weight_norm": partial(GradientHead, "original_weight_norm"),
    "cosine": partial(GradientHead, "cosine"),
    "knn": KnnHead,
    "mean": MeanHead,
    "median": MedianHead,
    "slda": SldaHead,
}

ALL_HEADS: tuple[str, ...] = (  # the paper's 19: each layer with each mask, then the others
    *(layer if mask == "none" else f"{layer}+{mask}" for layer in LAYERS for mask in MASKS),
    *(name for name in HEADS if name not in LAYERS),
)


def split_name(name: str, mask: str | None = None) -> tuple[str, str]:
    """Take "cosine+single" apart into ("cosine", "single"); without a mask it is "none"."""
    base, plus, written = name.partition("+")
    look_up(base, HEADS, "head")
    if plus and mask is not None and mask != written:
        raise OptionError(f"expected one mask, got '{written}' in the name and '{mask}' beside it")
    found = written if plus else (mask or "none")
    look_up(found, MASKS, "mask")
    if found != "none" and base not in LAYERS:
        raise OptionError(
            f"expected no mask for '{base}', which is not trained by gradient, got '{found}'"
        )
    return base, found


def make_head(
    name: str,
    in_features: int,
    n_classes: int = 0,
    *,
    mask: str | None = None,
    preset: Preset = "exact",
    **options: Any,
) -> Head:
    """Make a head by its name, its mask in the name ("cosine+single") or beside it.

    Args:
        name: one of ``HEADS``.
        in_features: the size of a feature vector.
        n_classes: classes known beforehand; more may arrive.
        mask: "none", "single" or "group"; heads trained by gradient only.
        preset: "exact", or "paper" for the paper's method with its quirks.
        **options: of that head, e.g. ``lr=0.1``, ``shrinkage=1e-3``, ``k=7``.

    >>> make_head("mean", in_features=64).passes
    1
    """
    base, found = split_name(name, mask)
    known = options_of(base)
    for wrong in options.keys() - set(known):
        raise OptionError(
            f"head '{base}' has no option '{wrong}'; there are: {', '.join(known) or 'none'}"
        )
    if base in LAYERS:
        options["mask"] = found
    return HEADS[base](in_features=in_features, n_classes=n_classes, preset=preset, **options)


def options_of(name: str) -> tuple[str, ...]:
    """Name what can be set about a head beyond its sizes, mask and preset.

    >>> options_of("slda")
    ('shrinkage', 'prior', 'per_class_scatter')
    """
    base, _ = split_name(name)
    parameters = signature(HEADS[base]).parameters.values()
    options = (p.name for p in parameters if p.kind is Parameter.KEYWORD_ONLY)
    return tuple(option for option in options if option != "mask")


def load_head(path: str | os.PathLike[str]) -> Head:
    """Read a head that ``save`` wrote."""
    tensors, document = read_tensors(path, "head")
    head = make_head(document["head"], **document["settings"])
    head.load_state_dict(tensors)
    return head


__all__ = [
    "ALL_HEADS",
    "HEADS",
    "GradientHead",
    "Head",
    "KnnHead",
    "MeanHead",
    "MedianHead",
    "SldaHead",
    "load_head",
    "make_head",
    "options_of",
    "split_name",
]
