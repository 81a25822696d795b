"""From data to a classifier that is kept: fit, go on, answer, forget."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from lastlayer.arguments import a_path, whole
from lastlayer.errors import DataError, OptionError
from lastlayer.estimator import HeadClassifier
from lastlayer.features.rows import Rows, Source, read_rows

Path_ = str | os.PathLike[str]


def fit(
    data: Source,
    head: Path_ | HeadClassifier = "slda",
    *,
    rows: str = "train",
    embedding: str | None = None,
    label: str | None = None,
    random_state: int | None = 0,
    **settings: Any,
) -> HeadClassifier:
    """Train a head on features, and give it as a classifier that answers with their labels.

    Args:
        data: ``Features``, the name or file of some, or a file that ``lastlayer import`` takes.
        head: The name of a head; or the file of one, or a classifier, which goes on learning.
        rows: ``train``, ``validation``, ``test`` or ``all``.
        embedding: The columns of embeddings, if ``data`` is a table.
        label: The label column to learn, if not the usual one.
        random_state: Of what is random in a new head and its training.
        **settings: Of a new ``HeadClassifier``: ``mask``, ``preset``, ``lr``, ``epochs``,
            ``options`` and so on; of one that goes on only ``epochs`` and ``batch_size``.

    >>> import lastlayer as ll
    >>> data = ll.load_features("cifar10")
    >>> clf = fit(data, "slda")
    >>> clf.predict(data.test.z[:3].numpy()).tolist()
    ['dog', 'ship', 'ship']
    """
    if random_state is not None:
        whole(random_state, "random_state", least=0, most=2**32 - 1)
    parts = read_rows(data, rows, embedding=embedding, label=label)
    if isinstance(head, HeadClassifier):
        clf = head
    elif is_head_file(head):
        clf = HeadClassifier.load(head)
    else:
        clf = HeadClassifier(str(head), random_state=random_state, **settings)
        settings = {}
    _go_on_with(clf, settings)
    for part in parts:
        clf.learn_rows(part.z, labels_of(part), part.names)
    return clf


def predict(
    clf: HeadClassifier, data: Source, *, rows: str = "all", embedding: str | None = None,
    label: str | None = None,
) -> tuple[pl.DataFrame, dict[str, float]]:  # fmt: skip
    """Answer every row of features or of a table.

    Returns:
        A table of label and probability, with the split of each row where there are several; and
        the share of right answers in each split that has labels.
    """
    parts = read_rows(data, rows, embedding=embedding, label=label, labelled=False)
    tables, right = [], {}
    for part in parts:
        labels, probability = clf.answer_rows(part.z)
        split = {"split": [part.split] * len(labels)} if len(parts) > 1 else {}
        tables.append(pl.DataFrame({"label": labels, "probability": probability, **split}))
        if part.y is not None:
            true = np.array(part.names, dtype=object)[part.y.numpy()]
            right[part.split] = float(np.mean(true == np.array([str(x) for x in labels.tolist()])))
    return pl.concat(tables), right


def forget(
    clf: HeadClassifier, data: Source, *, rows: str = "train", embedding: str | None = None,
    label: str | None = None, only: str | None = None,
) -> int:  # fmt: skip
    """Make a classifier forget rows of features or of a table; all of them, or those of a class.

    Args:
        clf: The classifier, which is changed if all of them can be forgotten, or not at all.
        data: What ``fit`` takes.
        rows: As ``fit`` takes them.
        embedding: As ``fit`` takes it.
        label: As ``fit`` takes it.
        only: The name of the class whose rows are meant, if not all are.

    Returns:
        How many rows were forgotten.
    """
    parts = read_rows(data, rows, embedding=embedding, label=label)
    if len(parts) > 1:
        raise OptionError("expected one split to forget, got several: choose its rows")
    (part,) = parts
    z, y = part.z, labels_of(part)
    if only is not None:
        if only not in part.names:
            raise DataError(f"expected rows of '{only}' to forget, but there are none")
        mine = y == part.names.index(only)
        z, y = z[mine], y[mine]
    if not len(y):
        raise DataError("expected rows to forget, but there are none")
    clf.forget_rows(z, y, part.names)
    return len(y)


def update(path: Path, change: Callable[[HeadClassifier], object], out: Path) -> HeadClassifier:
    """Change the classifier in a file; ``out`` is the old one or the new one at any moment.

    A file that another process has changed meanwhile is left alone.
    """
    before = _version(path)
    clf = HeadClassifier.load(path)
    change(clf)
    if _version(path) != before:
        raise OptionError(f"{path} was changed by another process meanwhile: run this again")
    clf.save(out)
    return clf


def is_head_file(head: Path_) -> bool:
    """Tell the file of a head from the name of one."""
    path = a_path(head, "head")
    return not isinstance(head, str) or path.suffix == ".safetensors" or path.is_file()


def labels_of(part: Rows) -> Any:
    """Give the labels of rows, which there must be."""
    if part.y is None:
        raise DataError("expected labels for these rows, but there are none")
    return part.y


def _go_on_with(clf: HeadClassifier, settings: dict[str, Any]) -> None:
    wrong = settings.keys() - {"epochs", "batch_size"}
    if wrong:
        raise OptionError(
            f"a head that goes on learning stays as it was made: leave out {', '.join(wrong)}"
        )
    clf.set_params(**settings)


def _version(path: Path) -> tuple[int, int, int]:
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns
