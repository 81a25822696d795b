"""What heads are held against: a softmax regression that is retrained on everything at once."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lastlayer.errors import DataError, LastLayerError
from lastlayer.features import Features
from lastlayer.heads import FeatureMap
from lastlayer.scenarios.scenario import count_classes
from lastlayer.study.prepare import Prepared
from lastlayer.training.reference import reference

WORK = {"cpu": 3e10, "cuda": 3e12}  # rows × features × classes that are retrained on
ROOM = {"cpu": 1 << 30, "cuda": 1 << 34}  # bytes of features, mapped where there is a map

Known = Mapping[str, Mapping[str, float]]  # features → label → accuracy, 0 to 1


def retrained(
    data: Features,
    label: str,
    n_classes: int,
    where: torch.device,
    rows: Tensor | None = None,
    map: FeatureMap | None = None,
) -> float:
    """Train a softmax regression until it converges, and return its accuracy on the test rows.

    Args:
        data: training and test features.
        label: the column that is learned.
        n_classes: of that column.
        where: the device to train on.
        rows: of the training features; None: all.
        map: of the features, if it is trained behind one.
    """
    part = slice(None) if rows is None else rows
    n = len(data.train) if rows is None else len(rows)
    width = data.in_features if map is None else map.width
    if n * width * n_classes > WORK[where.type] or 4 * n * width > ROOM[where.type]:
        size = f"{n} rows × {width} features × {n_classes} classes"
        raise DataError(f"{size} are too many to retrain on here")
    z, y = data.train.z[part].float().to(where), data.train.labels[label][part].to(where)
    found = reference(z, y, n_classes, map=map if map is None else map.to(where), quick=True)
    right = found.predict(data.test.z.float().to(where)).cpu() == data.test.labels[label]
    return float(right.double().mean())


def references(ready: Prepared, known: Known, where: torch.device) -> dict[str, dict[str, float]]:
    """Return what retraining reaches on the data of the heads of a plan, with what is known of it.

    Data that are too large to be retrained on, or that a regression cannot be trained on, have
    none: they are left out, and the study is complete without them.

    Args:
        ready: the plan's runs and data.
        known: what was found before.
        where: the device to train on.
    """
    found = {name: dict(by_label) for name, by_label in known.items()}
    labels = {(run.features, ready.labels[digest]) for digest, run in ready.of("head").items()}
    for name, label in sorted(labels):
        if label in known.get(name, {}):
            continue
        data = ready.data[name]
        try:
            accuracy = retrained(data, label, count_classes(data, label), where)
        except LastLayerError:
            continue
        found.setdefault(name, {})[label] = accuracy
    return found
