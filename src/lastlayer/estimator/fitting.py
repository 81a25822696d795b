"""From data to a saved classifier: fit, train further, predict, forget, merge."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastlayer.catalogue.head_cards import card_of, split_name
from lastlayer.cluster import Cluster
from lastlayer.core.checks import a_path, choice, whole
from lastlayer.core.files import check_ordinary
from lastlayer.core.names import class_name, joined
from lastlayer.core.progress import Tell
from lastlayer.data import made_by
from lastlayer.data.corrections import Suspects
from lastlayer.data.rows import CHOICES, Rows, Source, answers_of, corrected, read_rows
from lastlayer.data.shard_list import Sharded, is_sharded, list_shards
from lastlayer.data.tables.open_table import is_dataset
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import DataError, MergeError, OptionError
from lastlayer.estimator import HeadClassifier
from lastlayer.estimator.fit_shards import LEARNED, fit_shards
from lastlayer.evaluate.shard_tasks import do
from lastlayer.heads import make_head
from lastlayer.heads.calibration import warn_if_stale
from lastlayer.heads.forgotten import say_left_out

Path_ = str | os.PathLike[str]
Array = NDArray[Any]
ANSWERED = 1 << 13  # rows that are answered at once
SCORED = 1 << 22  # and logits: with many classes, fewer rows
_SURROGATE = re.compile("[\ud800-\udfff]")


def fit(
    data: Source | Sharded,
    head: Path_ | HeadClassifier = "slda",
    *,
    like: Path_ | HeadClassifier | None = None,
    rows: str = "train",
    embedding: str | None = None,
    label: str | None = None,
    answer: str | None = None,
    drop: Suspects | None = None,
    relabel: Suspects | None = None,
    weight: str | None = None,
    seed: int = 0,
    broken: str = "stop",
    learned: str = "stop",
    parts: Path_ | None = None,
    ray: str | None = None,
    accept_features: bool = False,
    progress: Tell | None = None,
    **settings: Any,
) -> HeadClassifier:
    """Train a head on features, and give it as a classifier that answers with their labels.

    Args:
        data: ``Features``, the name or file of some, or a file that ``lastlayer import`` takes; or
            shards: a folder, a pattern such as ``shards/*.parquet`` where no file has that very
            name, or a list of files. Shards are read some rows at a time, on all cores.
        head: The name of a head; or a head's file, or a classifier, to train it further.
        like: A head's file, or a classifier: a new head is begun like it, in place of ``head``, so
            that the two can be merged.
        rows: ``train``, ``validation``, ``test`` or ``all``.
        embedding: The columns of embeddings, if ``data`` is a table.
        label: The label column to learn, if not the usual one.
        answer: A coarser label column, which ``label`` refines: the head learns the finer labels
            and answers with the coarser ones.
        drop: Rows to leave out, as the table of ``ll.audit`` or a file of it.
        relabel: Rows to learn with the labels that such a table suggests.
        weight: The column that says how often each row counts, if they do not count alike.
        seed: Decides what is random in a new head and its training.
        broken: ``stop`` at a shard that cannot be read, or ``skip`` it.
        learned: ``stop`` where the head has learned a shard before, ``skip`` such shards, or learn
            them ``again``.
        parts: A folder for partial results from shards: called again after a kill, the
            work resumes from there. On a cluster all nodes must see it. What is left in it, the
            sum, is yours to remove once the classifier is saved.
        ray: The address of a Ray cluster to learn shards on, ``auto``, or ``local``.
        accept_features: Whether to take features that another model made than those that the head
            has learned, or that seem to be of another; else the first are refused, and of the
            others a warning is given.
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
    whole(seed, "seed", least=0, most=2**32 - 1)
    choice(broken, ("stop", "skip"), "broken")
    choice(learned, LEARNED, "learned")
    head = head if like is None else _opened(like).fresh()
    sharded, share = goes_by_shards(data, head), settings.get("calibration")
    if not sharded and not (ray is parts is None and broken == learned == "stop"):
        raise OptionError(
            "ray, parts, broken and learned are for shards: a folder, a pattern or a list"
        )
    if sharded and not (drop is None and relabel is None):
        raise OptionError("drop and relabel are for rows that are read whole, not for shards")
    if sharded and answer is not None:
        raise OptionError("shards are read without coarser labels: fit a table, or a features file")
    if sharded and weight is not None:
        raise OptionError("rows of shards have no weights: fit a table, or a features file")
    if sharded and share is not None:
        raise OptionError(
            "cannot hold out rows of shards to calibrate with: leave out calibration, and "
            "calibrate the head afterwards, with rows that are in no shard"
        )
    clf = _classifier(head, seed, settings)
    if sharded:
        _check_mergeable(clf)
        selection = Selection(choice(rows, CHOICES, "rows"), embedding, label)
        how: dict[str, Any] = {"parts": parts, "broken": broken, "learned": learned}
        how |= {"progress": progress}
        how |= {"accept_features": accept_features}
        if ray is None:
            return fit_shards(cast(Sharded, data), clf, selection, **how)
        with closing(Cluster(ray)) as cluster:
            how |= {"run": partial(cluster.run, do), "check": cluster.check_nodes}
            return fit_shards(cast(Sharded, data), clf, selection, **how)
    also = [name for name in (weight, answer) if name is not None]
    found = _rows(clf, cast(Source, data), rows, embedding, label, accept_features, also=also)
    if answer is not None:
        clf.answer_by(answers_of(found, answer))
    found = _weighed(corrected(found, drop, relabel), weight)
    held = []
    for part in found:
        held.append(clf.learn(part, share))
        _note(clf, "learned", part, len(part.z) - (0 if held[-1] is None else len(held[-1][1])))
    if share is not None:
        _calibrate(clf, [rows for rows in held if rows is not None])
    return clf


def predict(
    clf: HeadClassifier, data: Source, *, rows: str = "all", embedding: str | None = None,
    label: str | None = None, unknown: float | None = None, id: str | None = None, top: int = 1,
    accept_features: bool = False,
) -> tuple[pl.DataFrame, dict[str, float]]:  # fmt: skip
    """Answer every row of features or of a table, told as ``fit`` is.

    Return a table of label and probability, with the split of each row where there are several; and
    the share of right answers among those that are given, in each split that has labels. The share
    ``unknown`` of known rows may be left without a label. The column ``id`` of the data is put in
    front of each answer. Of ``top`` labels of each row, none of which was forgotten or only
    declared, the second is ``label_2``, and so on.
    """
    top = min(whole(top, "top", least=1), max(clf.n_answers, 1))
    also = () if id is None else (id,)
    parts = _rows(clf, data, rows, embedding, label, accept_features, labelled=False, also=also)
    tables, right = [], {}
    for part in parts:
        labels, probability, known = _answers(clf, part, unknown, top)
        # What answers are called is taken: the label that was given stands beside them.
        taken = ("label", "probability", "split")
        told = {
            f"given_{name}" if name in taken else name: _writable(np.asarray(part.also[name]))
            for name in also
        }
        for k in range(top):
            after = f"_{k + 1}" if k else ""
            told |= {f"label{after}": _writable(labels[:, k])}
            told |= {f"probability{after}": probability[:, k]}
        split = {"split": [part.split] * len(labels)} if len(parts) > 1 else {}
        named = pl.col("^label(_[0-9]+)?$")
        table = pl.DataFrame(told | split).with_columns(pl.when(pl.Series(known)).then(named))
        tables.append(table)
        labels = labels[:, 0]
        if part.y is not None and known.any():
            names = _as_answered(clf, [part.names[c] for c in part.y.unique().tolist()], part.names)
            true = np.array(names, dtype=object)[part.y.numpy()]
            same = true == np.array([str(x) for x in labels.tolist()])
            right[part.split] = float(np.mean(same[known]))
    return pl.concat(tables), right


def _answers(
    clf: HeadClassifier, rows: Rows, unknown: float | None, top: int
) -> tuple[Array, Array, Array]:
    """Return labels (n, top), the likeliest first, how probable they are, and which are known."""
    with clf.head_.lock:
        limit = None if unknown is None else clf.head_.limit(unknown)
        z = clf.divided(rows)
        warn_if_stale(clf.head_)
        size = max(1, min(ANSWERED, SCORED // len(clf.labels_.ordered)))
        answers = [_answers_at_once(clf, part, limit, top) for part in z.split(size)]
    labels, probable, known = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    return labels, probable, known


def _answers_at_once(
    clf: HeadClassifier, z: Tensor, limit: float | None, top: int
) -> tuple[Array, Array, Array]:
    if limit is None:
        logits, known = clf.head_(z), np.ones(len(z), dtype=bool)
    else:
        logits, novelty = clf.head_.judge(z)
        known = (novelty <= limit).numpy()
    # The order of equal logits is that of the labels, as where the first alone is asked for.
    ordered = clf.in_order(logits, -np.inf)
    if top == 1:
        place = ordered.argmax(axis=1)[:, None]
    else:
        place = np.argsort(-ordered, axis=1, kind="stable")[:, :top]
    probable = clf.in_order(clf.head_.probabilities_of(logits), 0, np.sum)
    return clf.classes_[place], np.take_along_axis(probable, place, axis=1), known


def _as_answered(clf: HeadClassifier, given: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Return what labels stand for, if they are those that were learned, not those answered."""
    if clf.answers is None or set(given) <= set(map(str, clf.classes_.tolist())):
        return names
    stands_for = {str(label): str(answer) for label, answer in clf.answers.items()}
    return [stands_for.get(name, name) for name in names]


def calibrate(
    clf: HeadClassifier, data: Source, *, rows: str = "validation", embedding: str | None = None,
    label: str | None = None, living: bool = False, accept_features: bool = False,
) -> None:  # fmt: skip
    """Calibrate a classifier on rows of features or of a table that it has not learned.

    They are told as ``fit`` is. What it answers does not change; see ``Head.calibrate``.
    """
    parts = _rows(clf, data, rows, embedding, label, accept_features)
    _calibrate(clf, [clf.seen(part) for part in parts], living)


def forget(
    clf: HeadClassifier, data: Source | None, *, rows: str = "train", embedding: str | None = None,
    label: str | None = None, weight: str | None = None, only: str | None = None,
    again: bool = False, skip_not_learned: bool = False, accept_features: bool = False,
) -> tuple[int, str]:  # fmt: skip
    """Make a classifier forget rows of features or of a table; return how many, and what not.

    They are told as ``fit`` is; without ``data`` everything that was learned of the class ``only``
    is meant, and with both its rows among the data. Rows that were forgotten before, or held out to
    calibrate with, are refused, unless ``skip_not_learned`` leaves them out, or ``again`` says that
    the head has learned copies of them. How many were left out, and why, is said in words.
    """
    if data is None:
        return _forget_class(clf, only), ""
    also = [] if weight is None else [weight]
    parts = _rows(clf, data, rows, embedding, label, accept_features, also=also)
    parts = _weighed(parts, weight)
    if len(parts) > 1:
        raise OptionError("rows must be one split to forget, got several: choose one with rows")
    (part,), y, numbers = parts, parts[0].labelled, None
    if only is not None:
        names: list[str] = [class_name(name) for name in part.names]
        mine = y == (names.index(only) if only in names else -1)
        heavy = None if part.weight is None else part.weight[mine]
        part, y = replace(part, z=part.z[mine], y=y[mine], weight=heavy), y[mine]
        numbers = mine.nonzero().flatten()
    if not len(y):
        raise DataError(f"there are no rows{f' of {only!r}' if only else ''} to forget")
    with clf.head_.lock:
        z, y = clf.seen(part)
        found = clf.forget_rows(z, y, part.weight, again, skip_not_learned, numbers)
        gone = len(y) - sum(map(len, found.values()))
        if gone:
            _note(clf, "forgot", part, gone)
    return gone, say_left_out(found)


def _note(clf: HeadClassifier, did: str, part: Rows, rows: int) -> None:
    """Record in a sentence what a head did with rows, without a path of this machine."""
    split = f" {part.split}" if part.split else ""
    said = f"{did} {rows}{split} row{'' if rows == 1 else 's'}"
    said += f" of {part.source}" if part.source else ""
    said += ", with weights" if part.weight is not None else ""
    if made_by.are_others(part.made_by, clf.maker):
        said += f", accepted though made by {made_by.in_words(part.made_by)}"
    clf.note(said)


def _rows(
    clf: HeadClassifier, data: Source, rows: str, embedding: str | None, label: str | None,
    accepted: bool, labelled: bool = True, also: Sequence[str] = (),
) -> list[Rows]:  # fmt: skip
    """Read rows of features or of a table for a classifier, which may know their columns."""
    how: dict[str, Any] = {"embedding": embedding, "label": label, "also": also}
    found = read_rows(data, rows, **how, labelled=labelled, columns=clf.column_names)
    return [replace(part, accepted=True) for part in found] if accepted else found


def _weighed(parts: list[Rows], column: str | None) -> list[Rows]:
    return parts if column is None else [part.weighed(column) for part in parts]


def merge(*heads: Path_ | HeadClassifier, accept_features: bool = False) -> HeadClassifier:
    """Return a new classifier that equals having learned everything that each of some heads has.

    They are two or more files of heads, or classifiers, which stay as they are. They must be made
    with the same settings, and heads behind a map with the same map: ``fit(data, like=head)`` makes
    such heads. Labels are matched by name, and so are columns that have names. Heads whose features
    other models made are merged with ``accept_features``.
    """
    if len(heads) < 2:
        raise OptionError(f"merge takes at least two heads, got {len(heads)}")
    _check_different(heads)
    first, *others = (
        f"head {place}" if isinstance(head, HeadClassifier) else str(head)
        for place, head in enumerate(heads, 1)
    )
    merged = _opened(heads[0])
    rows = [_learned(merged)]
    for name, head in zip(others, heads[1:], strict=True):
        other = _opened(head)
        try:
            merged = merged.merge(other, accept_features)
        except (MergeError, DataError) as error:
            raise MergeError(f"cannot merge {first} with {name}: {error}") from error
        rows.append(_learned(other))
    merged.note(f"merged {len(heads)} heads of {joined(rows)} rows")
    return merged


def _check_different(heads: Sequence[Path_ | HeadClassifier]) -> None:
    """Refuse to merge a head with itself: its rows would count twice."""
    seen: set[object] = set()
    for head in heads:
        same = id(head) if isinstance(head, HeadClassifier) else a_path(head, "head").resolve()
        if same in seen:
            what = "a classifier" if isinstance(head, HeadClassifier) else str(head)
            raise OptionError(f"{what} is given twice: its rows would count twice")
        seen.add(same)


def _opened(head: Path_ | HeadClassifier) -> HeadClassifier:
    return head if isinstance(head, HeadClassifier) else HeadClassifier.load(head)


def _learned(clf: HeadClassifier) -> str:
    counts = clf.head_.class_counts
    return "unknown" if counts is None else f"{int(counts.sum())}"


def _forget_class(clf: HeadClassifier, name: str | None) -> int:
    if name is None:
        raise OptionError("pass rows to forget, or the name of a class")
    label, counts = clf.labels_.called(name), clf.head_.class_counts
    forgotten = 0 if counts is None else int(counts[clf.labels_.names.index(str(label))])
    clf.forget_class(label)
    clf.note(f"forgot class {class_name(str(label))}")
    return forgotten


def _writable(labels: Any) -> Any:
    """Return labels as a file can hold them: a lone surrogate is spelt out, as in a name."""
    if labels.dtype.kind not in "OU":
        return labels
    return [class_name(x) if _SURROGATE.search(x) else x for x in labels.tolist()]


@contextmanager
def changing(path: Path, out: Path) -> Iterator[HeadClassifier]:
    """Yield the classifier in a file to be changed; then write it to ``out``, whole or not at all.

    A file that another process has changed in the meantime is left alone.
    """
    check_ordinary(path, "a lastlayer head file")
    before = _version(path)
    clf = HeadClassifier.load(path)
    yield clf
    if _version(path) != before:
        raise OptionError(f"{path} was changed by another process meanwhile: rerun the command")
    clf.save(out)


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


def _check_mergeable(clf: HeadClassifier) -> None:
    """Refuse a head that cannot be learned in parts before anything is read."""
    if hasattr(clf, "head_"):
        clf.head_.fresh()
        return
    options = dict(clf.options or {}) | ({} if clf.lr is None else {"lr": clf.lr})
    make_head(clf.head, in_features=1, mask=clf.mask, preset=clf.preset, **options).fresh()


def _classifier(
    head: Path_ | HeadClassifier, seed: int, settings: dict[str, Any]
) -> HeadClassifier:
    """Return a new classifier, or the one that is trained further."""
    if not isinstance(head, HeadClassifier) and not is_head_file(head):
        return HeadClassifier(str(head), random_state=seed, **settings)
    if wrong := settings.keys() - {"epochs", "batch_size", "calibration"}:
        raise OptionError(
            f"a head that is trained further keeps its settings: leave out {', '.join(wrong)}"
        )
    clf = _opened(head)
    clf.set_params(**settings)
    return clf


def _calibrate(
    clf: HeadClassifier, held: Sequence[tuple[Tensor, ...]], living: bool = False
) -> None:
    z, y = zip(*held, strict=True)
    clf.head_.calibrate(torch.cat(z), torch.cat(y), living)


def _version(path: Path) -> tuple[int, int, int]:
    about = path.stat()
    return about.st_ino, about.st_size, about.st_mtime_ns
