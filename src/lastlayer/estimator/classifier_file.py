"""A classifier in the file of its head: its settings, labels, columns and random numbers."""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from lastlayer.data.feature_columns import learned_columns
from lastlayer.data.made_by import maker_of
from lastlayer.errors import FileFormatError
from lastlayer.estimator.class_labels import ClassLabels, labels_of
from lastlayer.heads import Head, head_of
from lastlayer.heads.head_file import HeadFile, read_head, write_head

Path_ = str | os.PathLike[str]
T = TypeVar("T")


def write_classifier(path: Path_, settings: Mapping[str, Any], fitted: Mapping[str, Any]) -> None:
    """Write what makes a classifier, the arguments of ``HeadClassifier``, and its attributes."""
    head: Head = fitted["head_"]
    options, seed = settings["options"] or {}, settings["random_state"]
    kept = dict(settings) | {
        "options": {name: value for name, value in options.items() if name in head.options},
        "random_state": seed if isinstance(seed, int) else None,
    }
    if isinstance(weights := settings["class_weight"], Mapping):  # JSON makes text of every key
        labels, numbers = np.array([*weights]).tolist(), map(float, weights.values())
        kept["class_weight"] = list(zip(labels, numbers, strict=True))
    if (answers := kept.pop("answers")) is not None:
        pairs = (np.array([*part]).tolist() for part in (answers.keys(), answers.values()))
        kept["answers"] = list(zip(*pairs, strict=True))
    # Heads that see the data once draw nothing after they were made.
    if head.passes is None:
        _, keys, *place = fitted["_random"].get_state(legacy=True)
        kept["random"] = [keys.tolist(), *place]
    scale, columns = float(settings["feature_scale"]), fitted.get("feature_names_in_")
    parts = {
        "labels": fitted["labels_"].kind,
        "classifier": kept,
        "feature_map": None if scale == 1 else {"divide_by": scale},
        "feature_names": None if columns is None else columns.tolist(),
        "made_by": fitted.get("made_by_"),
    }
    write_head(path, head, **parts)


def read_classifier(path: Path_, make: Callable[..., T]) -> T:
    """Read what ``write_classifier`` wrote, or any head's file.

    ``make`` makes the classifier of its settings; what was fitted becomes its attributes.
    """
    file = read_head(path)
    head = head_of(file, path)
    try:
        settings = _settings_of(file, head)
        made = make(**settings)
        names = head.class_names or [str(c) for c in range(head.n_classes)]
        usual = "int64" if head.class_names is None else "str"
        labels = ClassLabels.of(labels_of(names, file.parts.get("labels", usual)))
        head.class_names = labels.names
        random = check_random_state(settings.get("random_state"))
        if "random" in file.parts.get("classifier", {}):
            keys, *place = file.parts["classifier"]["random"]
            random.set_state(("MT19937", np.array(keys, dtype=np.uint32), *place))
        columns = learned_columns(head.in_features, file.parts.get("feature_names", ()))
        made.__dict__.update(columns, head_=head, labels_=labels, _random=random)
        if maker := maker_of(file.parts.get("made_by")):
            made.__dict__["made_by_"] = maker
    except (TypeError, ValueError, LookupError) as error:
        raise FileFormatError(
            f"{path} does not hold a classifier of this version: {error}"
        ) from error
    return made


def _settings_of(file: HeadFile, head: Head) -> dict[str, Any]:
    """Return what makes such a classifier; of a head's own file, what made the head."""
    kept = dict(file.parts.get("classifier", {}))
    kept.pop("random", None)
    if kept:
        kept["options"] = kept.get("options") or None
        if isinstance(weights := kept.get("class_weight"), list):
            kept["class_weight"] = {label: float(number) for label, number in weights}
        if isinstance(answers := kept.get("answers"), list):
            kept["answers"] = dict(answers)
        scale = file.parts.get("feature_map", {}).get("divide_by", 1.0)
        return kept | {"feature_scale": scale}
    options = dict(head.options)
    mask, lr = options.pop("mask", None), options.pop("lr", None)
    given = {"head": file.name, "mask": mask, "lr": lr, "preset": head.preset}
    return given | {"options": options or None}
