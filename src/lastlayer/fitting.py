"""From data to a saved classifier: fit, train further, predict, forget."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from lastlayer.arguments import a_path, choice, whole
from lastlayer.catalogue import card_of, split_name
from lastlayer.errors import DataError, OptionError, ShapeError
from lastlayer.estimator import HeadClassifier, HeldOut
from lastlayer.features.rows import CHOICES, Rows, Source, read_rows
from lastlayer.features.tables.opening import is_dataset
from lastlayer.names import class_name
from lastlayer.progress import Tell
from lastlayer.shards.fit import fit_shards
from lastlayer.shards.listing import Sharded, is_sharded, list_shards
from lastlayer.shards.local import Local
from lastlayer.shards.on_ray import OnRay
from lastlayer.shards.reading import Wish

Path_ = str | os.PathLike[str]
_SURROGATE = re.compile("[\ud800-\udfff]")


def fit(
    data: Source | Sharded,
    head: Path_ | HeadClassifier = "slda",
    *,
    rows: str = "train",
    embedding: str | None = None,
    label: str | None = None,
    random_state: int | None = 0,
    broken: str = "stop",
    parts: Path_ | None = None,
    ray: str | None = None,
    progress: Tell | None = None,
    **settings: Any,
) -> HeadClassifier:
    """Train a head on features, and give it as a classifier that answers with their labels.

    Args:
        data: ``Features``, the name or file of some, or a file that ``lastlayer import`` takes; or
            shards: a folder, a pattern such as ``shards/*.parquet`` where no file has that very
            name, or a list of files. Shards are read some rows at a time, on all cores.
        head: The name of a head; or a head's file, or a classifier, to train it further.
        rows: ``train``, ``validation``, ``test`` or ``all``.
        embedding: The columns of embeddings, if ``data`` is a table.
        label: The label column to learn, if not the usual one.
        random_state: Of what is random in a new head and its training.
        broken: ``stop`` at a shard that cannot be read, or ``skip`` it.
        parts: A folder for partial results from shards: called again after a kill, the
            work resumes from there. On a cluster all nodes must see it. What is left in it, the
            sum, is yours to remove once the classifier is saved.
        ray: The address of a Ray cluster to learn shards on, ``auto``, or ``local``.
        progress: Is told how many rows of shards are learned, and how many there are.
        **settings: Of a new ``HeadClassifier``: ``mask``, ``preset``, ``lr``, ``epochs``,
            ``options``, ``calibration`` and so on; of one that keeps learning only ``epochs``,
            ``batch_size`` and ``calibration``. With the last, a share of the rows of each class is
            not learned but calibrated with.

    >>> import lastlayer as ll
    >>> data = ll.load_features("cifar10")
    >>> clf = fit(data, "slda")
    >>> clf.predict(data.test.z[:3].numpy()).tolist()
    ['dog', 'ship', 'ship']
    """
    if random_state is not None:
        whole(random_state, "random_state", least=0, most=2**32 - 1)
    sharded = goes_by_shards(data, head)
    if not sharded and (ray is not None or parts is not None or broken != "stop"):
        raise OptionError(
            "expected a folder or a pattern of shards: ray, parts and broken are for them"
        )
    share = settings.get("calibration")
    if sharded and share is not None:
        raise OptionError(
            "cannot hold out rows of shards to calibrate with: leave out calibration, and "
            "calibrate the head afterwards, with rows that are in no shard"
        )
    held = None if share is None else HeldOut(share)
    found = [] if sharded else read_rows(cast(Source, data), rows, embedding=embedding, label=label)
    if isinstance(head, HeadClassifier):
        clf = head
    elif is_head_file(head):
        clf = HeadClassifier.load(head)
    else:
        clf = HeadClassifier(str(head), random_state=random_state, **settings)
        settings = {}
    _go_on_with(clf, settings)
    if sharded:
        wish = Wish(choice(rows, CHOICES, "rows"), embedding, label)
        runner = Local() if ray is None else OnRay(ray)
        how: dict[str, Any] = {"parts": parts, "broken": broken, "progress": progress}
        try:
            return fit_shards(cast(Sharded, data), clf, wish, runner=runner, **how)
        finally:
            runner.close()
    for part in found:
        _check_columns(clf, part)
        clf.learn_rows(part.z, labels_of(part), part.names, held, part.columns)
    return clf if held is None else clf.calibrate_rows(held)


def predict(
    clf: HeadClassifier, data: Source, *, rows: str = "all", embedding: str | None = None,
    label: str | None = None, unknown: float | None = None,
) -> tuple[pl.DataFrame, dict[str, float]]:  # fmt: skip
    """Answer every row of features or of a table.

    Args:
        clf: The classifier.
        data: What ``fit`` takes.
        rows: As ``fit`` takes them.
        embedding: As ``fit`` takes it.
        label: As ``fit`` takes it.
        unknown: The share of known rows that may be left without a label, as unknown; None: none.

    Returns:
        A table of label and probability, with the split of each row where there are several; and
        the share of right answers among those that are given, in each split that has labels.
    """
    parts = read_rows(data, rows, embedding=embedding, label=label, labelled=False)
    tables, right = [], {}
    for part in parts:
        _check_columns(clf, part)
        labels, probability, known = clf.answer_rows(part.z, unknown, part.columns)
        split = {"split": [part.split] * len(labels)} if len(parts) > 1 else {}
        table = pl.DataFrame({"label": _writable(labels), "probability": probability, **split})
        tables.append(table.with_columns(pl.when(pl.Series(known)).then("label").alias("label")))
        if part.y is not None and known.any():
            true = np.array(part.names, dtype=object)[part.y.numpy()]
            same = true == np.array([str(x) for x in labels.tolist()])
            right[part.split] = float(np.mean(same[known]))
    return pl.concat(tables), right


def calibrate(
    clf: HeadClassifier, data: Source, *, rows: str = "validation", embedding: str | None = None,
    label: str | None = None,
) -> None:  # fmt: skip
    """Find out how sure a classifier may be, on rows of features or of a table.

    Args:
        clf: The classifier; what it answers does not change.
        data: What ``fit`` takes; it must not have learned these rows.
        rows: As ``fit`` takes them.
        embedding: As ``fit`` takes it.
        label: As ``fit`` takes it.
    """
    held = HeldOut()
    for part in read_rows(data, rows, embedding=embedding, label=label):
        _check_columns(clf, part)
        clf.hold_rows(part.z, labels_of(part), part.names, held, part.columns)
    clf.calibrate_rows(held)


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
        raise OptionError("expected one split to forget, got several: choose one with rows")
    (part,) = parts
    _check_columns(clf, part)
    z, y = part.z, labels_of(part)
    if only is not None:
        names: list[str] = [class_name(label) for label in part.names]
        if only not in names:
            raise DataError(f"expected rows of '{only}' to forget, but there are none")
        mine = y == names.index(only)
        z, y = z[mine], y[mine]
    if not len(y):
        raise DataError("expected rows to forget, but there are none")
    clf.forget_rows(z, y, part.names, part.columns)
    return len(y)


def _writable(labels: Any) -> Any:
    """Return labels as a file can hold them: a lone surrogate is spelt out, as in a name."""
    if labels.dtype.kind not in "OU":
        return labels
    return [class_name(x) if _SURROGATE.search(x) else x for x in labels.tolist()]


def update(path: Path, change: Callable[[HeadClassifier], object], out: Path) -> HeadClassifier:
    """Change the classifier in a file; ``out`` is the old one or the new one at any moment.

    A file that another process has changed in the meantime is left alone.
    """
    before = _version(path)
    clf = HeadClassifier.load(path)
    change(clf)
    if _version(path) != before:
        raise OptionError(f"{path} was changed by another process meanwhile: rerun the command")
    clf.save(out)
    return clf


def goes_by_shards(data: object, head: Path_ | HeadClassifier) -> bool:
    """Tell whether data are learned as shards.

    A folder of Hugging Face's datasets is, unless the head cannot be merged: then it is read whole.
    """
    if not is_sharded(data):
        return False
    if not isinstance(data, str | os.PathLike) or not is_dataset(a_path(data)):
        return True
    if isinstance(head, HeadClassifier):
        return not hasattr(head, "head_") or head.head_.abilities.merges
    if is_head_file(head):
        return HeadClassifier.load(head).head_.abilities.merges
    return card_of(split_name(str(head), None)[0]).abilities.merges


def files_of(data: Path_) -> list[Path]:
    """List the files that data are read from, as far as they are files."""
    if is_sharded(data):
        return [Path(shard.path) for shard in list_shards(data, "all")]
    path = a_path(data)
    return [path] if path.is_file() else []


def is_head_file(head: Path_) -> bool:
    """Tell the file of a head from the name of one."""
    path = a_path(head, "head")
    return not isinstance(head, str) or path.suffix == ".safetensors" or path.is_file()


def _check_columns(clf: HeadClassifier, part: Rows) -> None:
    """Refuse a table whose columns are not as many as the head has learned, and name them."""
    names, learned = part.columns, getattr(clf, "n_features_in_", None)
    if len(names) < 2 or learned in (None, len(names)):
        return
    missing = _missing(names, learned)
    few = ", ".join([*missing[:5], *(["…"] if len(missing) > 5 else [])])
    lacking = f"{few} {'is' if len(missing) == 1 else 'are'} missing"
    raise ShapeError(
        f"expected {learned} features per row, as the head has learned, got {len(names)}: "
        + (lacking if missing else f"columns {names[0]} to {names[-1]}")
    )


def _missing(names: Sequence[str], n: int) -> list[str]:
    """Return which of ``n`` numbered columns are not there, where their numbers tell.

    >>> _missing(["z_0", "z_1", "z_3"], 4), _missing(["z1", "z3"], 3), _missing(["z1", "z2"], 3)
    (['z_2'], ['z2'], [])
    >>> _missing(["z01", "z03"], 3), _missing([f"z{k}" for k in range(3, 13)], 12)
    (['z02'], ['z1', 'z2'])
    """
    prefix = names[0].rstrip("0123456789")
    tails = [name.removeprefix(prefix) for name in names]
    if not all(tail.isdecimal() for tail in tails):
        return []
    padded = any(tail.startswith("0") and len(tail) > 1 for tail in tails)
    numbers, digits = {int(tail) for tail in tails}, len(tails[0]) if padded else 1
    first = 0 if 0 in numbers else 1
    if max(numbers) > n - 1 + first or (first and n not in numbers):
        return []  # it is not known where they begin or end
    lacking = sorted(set(range(first, n + first)) - numbers)
    return [f"{prefix}{number:0{digits}}" for number in lacking]


def labels_of(part: Rows) -> Any:
    """Return the labels of rows, which there must be."""
    if part.y is None:
        raise DataError("expected labels for these rows, but there are none")
    return part.y


def _go_on_with(clf: HeadClassifier, settings: dict[str, Any]) -> None:
    wrong = settings.keys() - {"epochs", "batch_size", "calibration"}
    if wrong:
        raise OptionError(
            f"a head that is trained further keeps its settings: leave out {', '.join(wrong)}"
        )
    clf.set_params(**settings)


def _version(path: Path) -> tuple[int, int, int]:
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns
