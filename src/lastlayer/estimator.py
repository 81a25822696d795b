"""The scikit-learn face of a head: fit, partial_fit and predict, for any labels."""

# ruff: noqa: N803  (scikit-learn calls the features X)

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from lastlayer.arguments import kind_of, short
from lastlayer.errors import DataError, FileFormatError, LabelError, OptionError, ShapeError
from lastlayer.heads import Head, head_of, make_head, options_of
from lastlayer.heads.calibration import a_share
from lastlayer.heads.finite import are_usable, bad_features
from lastlayer.heads.graph import Inference
from lastlayer.heads.head import Preset
from lastlayer.heads.head_file import HeadFile, read_head, write_head
from lastlayer.heads.onnx_file import write_onnx
from lastlayer.heads.undo import Lock, settle
from lastlayer.names import class_name, look_up
from lastlayer.training.batches import BATCH_SIZE, shuffled_batches

EPOCHS = 5  # as in the paper
STEPS = 200  # at least: a set of few batches is shown more often
ANSWERED = 1 << 13  # rows that are answered at once
SCORED = 1 << 22  # and logits: with many classes, fewer rows
LOWEST = float(np.finfo(np.float32).min)  # in place of −∞ where scikit-learn wants a number

Array = NDArray[Any]


@dataclass
class HeldOut:
    """Rows that a classifier does not learn, but is calibrated with."""

    share: float = 1.0  # of the rows of each class
    rows: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # features, the head's classes


class Divided:
    """Features (n, h), on disk or in memory, that are divided by a number when they are read.

    What a head is shown comes out of here and nowhere else, so that no verb can leave out the
    classifier's ``feature_scale``.
    """

    def __init__(self, z: Tensor, by: float) -> None:
        self._z, self._by = z, by

    def __len__(self) -> int:
        return len(self._z)

    def __getitem__(self, rows: Any) -> Tensor:
        part = self._z[rows]
        return part if self._by == 1 else part.double() / self._by

    def split(self, size: int) -> Iterator[Tensor]:
        """Read them in their order, that many rows at a time."""
        return (self[start : start + size] for start in range(0, max(len(self), 1), size))


class HeadClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Any head as a scikit-learn classifier; labels may be new at any ``partial_fit``.

    Args:
        head: its name, with its mask in it ("cosine+single") or beside it.
        mask: "none", "single" or "group"; only for heads trained by gradient.
        preset: "exact", or "paper" for the paper's method with its quirks.
        lr: the learning rate of a head trained by gradient; None: its own.
        epochs: how often each call shows its data to a head trained by gradient; None: 5 times, as
            ``compare`` does with a task, and ``fit`` as often as makes 200 steps if that is more.
            All other heads see them once.
        batch_size: samples in a step.
        feature_scale: features are divided by it before the head sees them; of use to heads
            trained by gradient, whose learning rate depends on the length of features.
        options: what else the head takes, such as {"shrinkage": 0.1} or {"k": 7}.
        calibration: the share of rows of each class that ``fit`` does not learn, but calibrates
            with, so that probabilities mean something and ``predict_or_unknown`` can be asked.
        random_state: of the shuffling, of the rows held out, and of what is random in the head.

    Attributes:
        classes_: the labels known so far, sorted.
        n_features_in_: the size of a feature vector.
        feature_names_in_: the names of its columns, where the data first learned had names. Later
            columns are put in this order by their names; other names are refused.
        head_: the head; its classes 0…N−1 are the labels in the order of their arrival.
        origin_: what it was learned from, in sentences, where that was many files.

    >>> clf = HeadClassifier("mean").partial_fit([[0.0], [2.0]], ["dog", "dog"])
    >>> clf.partial_fit([[9.0]], ["cat"]).predict([[1.0], [7.0]]).tolist()
    ['dog', 'cat']
    """

    classes_: Array
    head_: Head
    origin_: list[str]
    _column: Array  # (n_classes,) which class of the head each of classes_ is

    def __init__(
        self,
        head: str = "slda",
        *,
        mask: str | None = None,
        preset: Preset = "exact",
        lr: float | None = None,
        epochs: int | None = None,
        batch_size: int = BATCH_SIZE,
        feature_scale: float = 1.0,
        options: dict[str, Any] | None = None,
        calibration: float | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.head = head
        self.mask = mask
        self.preset = preset
        self.lr = lr
        self.epochs = epochs
        self.batch_size = batch_size
        self.feature_scale = feature_scale
        self.options = options
        self.calibration = calibration
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from scratch; on error, stay as before."""
        with self._all_or_nothing():
            z, labels = self._check(X, y, reset=True)
            self._begin(unique_labels(labels))
            columns = self._columns_of(labels)
            held = self._hold_out(columns, self.calibration)
            for rows, own in self._batches(z, columns, self._first_epochs(columns, held), held):
                self.head_.observe(rows, own)
            if held is not None:
                self.head_.calibrate(z[held], columns[held])
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Keep learning, as from the next task; ``classes`` may name labels to come.

        It learns every row: what was calibrated is out of date until ``calibrate``. After an error
        nothing of the call is learned.
        """
        with self._all_or_nothing():
            first = not hasattr(self, "head_")
            z, labels = self._check(X, y, reset=first)
            known = np.unique(labels) if classes is None else unique_labels(labels, classes)
            if first:
                self._begin(known)
            with self.head_.lock:
                self._welcome(known)
                columns = self._columns_of(labels)
                self.head_.observe_all(self._named_batches(z, columns, self.epochs or EPOCHS))
        return self

    def calibrate(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Calibrate on rows that were not learned; see ``Head.calibrate``."""
        with self._locked():
            z, labels = self._check(X, y, reset=False)
            self.head_.calibrate(z[:], self._columns_of(labels))
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Return the label with the largest logit."""
        with self._locked():
            labels: Array = self.classes_[self._logits(X).argmax(axis=1)]
            return labels

    def predict_or_unknown(
        self, X: ArrayLike, share: float = 0.05, unknown_label: object = None
    ) -> Array:
        """Return the label, or ``unknown_label`` where an input is too strange to be of any class.

        At most this share of inputs like those of the calibration is turned away (on average over
        calibrations, and over all classes together); of what is of no class, as much as can be
        told. Needs ``calibration=`` or ``calibrate``, with at least 1/share − 1 rows.

        >>> random = np.random.default_rng(0)
        >>> X, y = random.normal(size=(400, 2)), np.repeat(["dog", "cat"], 200)
        >>> X[200:] += 9
        >>> clf = HeadClassifier("slda", calibration=0.2, random_state=0).fit(X, y)
        >>> clf.predict_or_unknown([[0, 0], [9, 9], [0, 30]]).tolist()
        ['dog', 'cat', None]
        """
        with self._locked():
            self._check_unknown_label(unknown_label)
            limit = self.head_.limit(share)
            logits, novelty = self.head_.judge(self._features(X))
            labels: Array = self.classes_[self._in_order(logits, -np.inf).argmax(axis=1)]
        other = np.array([unknown_label])
        if other.dtype.kind != labels.dtype.kind:
            labels, other = labels.astype(object), other.astype(object)
        return np.where((novelty > limit).numpy(), other, labels)

    def novelty(self, X: ArrayLike) -> Array:
        """Return how strange each input is: the larger, the less like anything learned."""
        check_is_fitted(self, "head_")
        return self.head_.novelty(self._features(X)).numpy()

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return how probable each label is, in the order of ``classes_``.

        They mean what they say if the classifier was calibrated. If not, they are the softmax of
        the logits, over the head's own temperature where it has one (``Head.probabilities``); for
        knn the shares of the vote. If it has learned since it was calibrated: NotCalibratedError.
        """
        with self._locked():
            return self._in_order(self.head_.probabilities(self._features(X)), 0)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the logits in the order of ``classes_``; of two classes, their difference.

        A very low number replaces −∞, since scikit-learn's scores accept only finite numbers.
        """
        logits = np.maximum(self._logits(X), LOWEST)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def forget(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Make it as if these samples with these labels had never been learned.

        A head that cannot do so exactly, labels that it does not know, and samples that it cannot
        have seen are refused, and nothing is changed; ``head_.proof`` says what that proves.

        >>> clf = HeadClassifier("mean").fit([[0.0], [2.0], [9.0]], ["dog", "dog", "cat"])
        >>> clf.forget([[2.0]], ["dog"]).predict_proba([[0.0]]).round(3).tolist()
        [[0.0, 1.0]]
        """
        with self._locked():
            z, labels = self._check(X, y, reset=False)
            self.head_.forget(z[:], self._columns_of(labels))
        return self

    def forget_class(self, label: object) -> Self:
        """Make it as if a label had never been seen; ``forget`` takes its samples elsewhere."""
        with self._locked():
            self.head_.forget_class(int(self._columns_of(np.asarray([label]))[0]))
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to the file of its head, a safetensors file, with its labels and settings."""
        with self._locked():
            self._save(path)

    def _save(self, path: str | os.PathLike[str]) -> None:
        head = self.head_
        kept = self.get_params() | {
            "options": {k: v for k, v in (self.options or {}).items() if k in head.options},
            "random_state": self.random_state if isinstance(self.random_state, int) else None,
        }
        if head.passes is None:  # the others draw nothing after they were made
            _, keys, *place = self._random.get_state(legacy=True)
            kept["random"] = [keys.tolist(), *place]
        parts = {
            "class_names": head.class_names,
            "calibration": head.calibration_part,
            "labels": _kind_of_labels(self.classes_),
            "classifier": kept,
            "feature_map": (
                None if self.feature_scale == 1 else {"divide_by": float(self.feature_scale)}
            ),
            "origin": getattr(self, "origin_", None),
            "feature_names": (
                self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None
            ),
        }
        write_head(path, head.name, head.settings, head.state_dict(), parts)

    def as_module(self, share: float | None = None, dtype: torch.dtype | None = None) -> Inference:
        """Return what answers as a module; its classes are ``head_.class_names``, in their order.

        Args:
            share: of known inputs that may be turned away, with class −1; None: none are.
            dtype: torch.float32 or float64; None: PyTorch's default, float32.
        """
        check_is_fitted(self, "head_")
        return self.head_.answering(share, dtype, float(self.feature_scale))

    def export_onnx(
        self,
        path: str | os.PathLike[str],
        share: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Write ``as_module(share, dtype)`` to an ONNX file, with the labels in its metadata."""
        write_onnx(self.as_module(share, dtype), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote, or any head's file; ``partial_fit`` continues it."""
        file = read_head(path)
        head = head_of(file, path)
        try:
            clf = cls(**_settings_of(file, head))
            clf.head_ = head
            clf._meet(head.in_features, file.parts.get("feature_names", ()))
            names = head.class_names or [str(c) for c in range(head.n_classes)]
            usual = "int64" if head.class_names is None else "str"
            clf._take_labels(_labels_of(names, file.parts.get("labels", usual)))
            clf._random = check_random_state(clf.random_state)
            if "origin" in file.parts:
                clf.origin_ = [str(sentence) for sentence in file.parts["origin"]]
            if "random" in file.parts.get("classifier", {}):
                keys, *place = file.parts["classifier"]["random"]
                clf._random.set_state(("MT19937", np.array(keys, dtype=np.uint32), *place))
        except (TypeError, ValueError, LookupError) as error:
            raise FileFormatError(
                f"{path} does not hold a classifier of this version: {error}"
            ) from error
        return clf

    def learn_rows(
        self,
        z: Tensor,
        y: Tensor,
        names: Sequence[str],
        held: HeldOut | None = None,
        columns: Sequence[str] = (),
    ) -> Self:
        """Learn features (n, h), on disk or in memory, in batches; classes ``y`` have ``names``.

        ``columns`` are the names of the h columns, where they have any.

        A first call is ``fit``, and the head's classes are then these; a later one ``partial_fit``.
        After an error it has learned the batches before: nothing is kept to undo them, since the
        rows may be more than the memory holds. With ``held``, that share of the rows of each class
        is not learned but put there; ``calibrate_rows`` takes it when all rows are learned.
        """
        first = not hasattr(self, "head_")
        self._check_options()
        if first:
            # A single name is that of a column of vectors, and says nothing of their order.
            self._meet(z.shape[1], columns if len(columns) > 1 else ())
        rows = self._in_rows(z, columns)
        if first:
            self._begin(text_labels(names))
            column = torch.arange(len(names))
        else:
            known = y.unique().tolist()
            labels = self._labels_like(names)
            self._welcome(labels[known])
            self._name_classes()
            column = torch.zeros(len(names), dtype=torch.int64)
            column[known] = self._columns_of(labels[known])
        classes = column[y]
        out = None if held is None else self._hold_out(classes, held.share)
        epochs = self._first_epochs(classes, out) if first else self.epochs or EPOCHS
        for some, own in self._batches(rows, classes, epochs, out):
            self.head_.observe(some, own)
        if held is not None:
            held.rows.append((rows[out], classes[out]))
        # Rows that wait to be folded in are folded now, as a file would: so it makes no difference,
        # to the bit, whether the head is kept in one between two calls.
        _ = self.head_.class_counts
        return self

    def hold_rows(
        self,
        z: Tensor,
        y: Tensor,
        names: Sequence[str],
        held: HeldOut,
        columns: Sequence[str] = (),
    ) -> Self:
        """Put features (n, h) of classes ``y``, called ``names``, aside to calibrate with."""
        check_is_fitted(self, "head_")
        rows, labels = self._in_rows(z, columns), self._labels_like(names)
        held.rows.append((rows[:], self._columns_of(labels[y.numpy()])))
        return self

    def calibrate_rows(self, held: HeldOut) -> Self:
        """Calibrate with the rows that were held out."""
        z, y = zip(*held.rows, strict=True)
        self.head_.calibrate(torch.cat(z), torch.cat(y))
        return self

    def take_in(
        self,
        width: int,
        names: Sequence[str],
        learn: Callable[[Head, Tensor], Head],
        said: Callable[[], str],
    ) -> Self:
        """Become what others make of its head, or stay as before.

        Args:
            width: the size of a feature vector.
            names: the classes that were learned.
            learn: gives the head that has learned them, of the one there is and their columns.
            said: says afterwards what it was learned from, for the head's file.
        """
        with self._all_or_nothing():
            self._check_options()
            if not hasattr(self, "head_"):
                self._meet(width)
                self._begin(text_labels(names))
                columns = torch.arange(len(names))
            else:
                self._check_width(width)
                labels = self._labels_like(names)
                self._welcome(labels)
                columns = self._columns_of(labels)
            self.head_ = learn(self.head_, columns)
            self._name_classes()
            self.origin_ = [*getattr(self, "origin_", ()), said()]
        return self

    def forget_rows(
        self, z: Tensor, y: Tensor, names: Sequence[str], columns: Sequence[str] = ()
    ) -> Self:
        """Forget features (n, h) of classes ``y``, called ``names``."""
        check_is_fitted(self, "head_")
        rows, labels = self._in_rows(z, columns), self._labels_like(names)
        self.head_.forget(rows[:], self._columns_of(labels[y.numpy()]))
        return self

    def answer_rows(
        self, z: Tensor, unknown: float | None = None, columns: Sequence[str] = ()
    ) -> tuple[Array, Array, Array]:
        """Predict features (n, h), on disk or in memory.

        Args:
            z: the features.
            unknown: the share of known inputs that may be turned away; None: none are.
            columns: the names of the h columns, where they have any.

        Returns:
            The label of each row, how probable it is, and whether it is known.
        """
        with self._locked():
            rows = self._in_rows(z, columns)
            limit = None if unknown is None else self.head_.limit(unknown)
            size = max(1, min(ANSWERED, SCORED // len(self.classes_)))
            answers = [self._answer(part, limit) for part in rows.split(size)]
        labels, probable, known = (np.concatenate(parts) for parts in zip(*answers, strict=True))
        return labels, probable, known

    def _answer(self, z: Tensor, limit: float | None) -> tuple[Array, Array, Array]:
        if limit is None:
            logits, known = self.head_(z), np.ones(len(z), dtype=bool)
        else:
            logits, novelty = self.head_.judge(z)
            known = (novelty <= limit).numpy()
        shares = self._in_order(self.head_.probabilities_of(logits), 0)
        winners = shares.argmax(axis=1)
        return self.classes_[winners], shares.max(axis=1), known

    def label_like(self, name: str) -> Any:
        """Return the label with this name (``class_name``), of the labels' own type."""
        labels: dict[str, Any] = {class_name(str(label)): label for label in self.classes_.tolist()}
        return look_up(name, labels, "class")

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore the state before the block if it ends with an error or an interrupt."""
        before = self.__dict__.copy()
        random = self._random.get_state() if hasattr(self, "_random") else None
        try:
            yield
        except BaseException:
            if not self._has_learned_new(before):
                self.__dict__.update(before)  # never empty in between: other threads may ask
                for name in self.__dict__.keys() - before.keys():
                    del self.__dict__[name]
            if random is not None:
                self._random.set_state(random)
            raise

    def _has_learned_new(self, before: dict[str, Any]) -> bool:
        """Return whether an interrupt came when the head had already learned new classes.

        Then their labels stay: without them another label would get their columns later.
        """
        if "head_" not in before or before["head_"] is not self.__dict__.get("head_"):
            return False
        with self.head_.lock:
            settle(self.head_)
        names = self.head_.class_names or ()
        return len(before["classes_"]) < len(self.classes_) == len(names)

    def _locked(self) -> Lock:
        """Return the head's lock: what it has learned and its labels change together."""
        check_is_fitted(self, "head_")
        return self.head_.lock

    def _begin(self, classes: Array) -> None:
        """Make a new head whose classes are these labels, in this order."""
        options = dict(self.options or {})
        if self.lr is not None:
            options["lr"] = self.lr
        self._random = check_random_state(self.random_state)
        if "seed" in options_of(self.head) and "seed" not in options:
            options["seed"] = int(self._random.randint(2**31))
        size = (self.n_features_in_, len(classes))
        head = make_head(self.head, *size, mask=self.mask, preset=self.preset, **options)
        self.head_ = head.double()  # as precise as scikit-learn
        self._take_labels(classes)

    def _take_labels(self, labels: Array) -> None:
        """Set the labels of the head's classes 0, 1, …; ``classes_`` holds them sorted."""
        self._column = np.argsort(labels, kind="stable")
        self.classes_ = labels[self._column]
        self._name_classes()

    def _name_classes(self) -> None:
        by_column = [""] * len(self.classes_)
        for label, column in zip(self.classes_.tolist(), self._column.tolist(), strict=True):
            by_column[column] = str(label)
        self.head_.class_names = by_column

    def _welcome(self, classes: Array) -> None:
        """Assign the next columns of the head to new labels; ``classes_`` stays sorted."""
        if len(classes) <= len(self.classes_) and np.isin(classes, self.classes_).all():
            return
        classes = unique_labels(self.classes_, classes)
        known = np.isin(classes, self.classes_)
        column = np.empty(len(classes), dtype=np.int64)
        column[known] = self._column
        column[~known] = np.arange(len(self.classes_), len(classes))
        self.classes_, self._column = classes, column

    def _check_unknown_label(self, label: object) -> None:
        check_is_fitted(self, "head_")
        if label in self.classes_.tolist():
            raise OptionError(
                f"expected an unknown_label that is not one of the classes, got {short(label)}"
            )

    def _hold_out(self, y: Tensor, share: float | None) -> Tensor | None:
        """Choose rows to calibrate with: a share of each class, and one at least."""
        if share is None:
            return None
        share = a_share(share, "calibration")
        held = []
        for c in y.unique().tolist():
            own = (y == c).nonzero().flatten()
            if len(own) < 2:
                raise DataError(
                    "expected at least 2 rows of each class, to learn from one and calibrate with "
                    f"the other, got 1 of {self.head_._called(c)}"
                )
            n = min(max(round(share * len(own)), 1), len(own) - 1)
            held.append(own[torch.from_numpy(self._random.permutation(len(own))[:n])])
        return torch.cat(held).sort().values

    def _first_epochs(self, y: Tensor, held: Tensor | None) -> int:
        steps_per_epoch = -(-(len(y) - (0 if held is None else len(held))) // self.batch_size)
        return self.epochs or max(EPOCHS, -(-STEPS // steps_per_epoch))

    def _columns_of(self, labels: Array) -> Tensor:
        """Return the head's classes of labels, which must all be known."""
        text, known_text = (a.dtype.kind in "OUS" for a in (labels, self.classes_))
        if text != known_text:
            kinds = [f"{kind_of(a.tolist()[0])}" for a in (self.classes_, labels) if len(a)]
            raise LabelError(f"expected labels such as {' and not '.join(kinds)}")
        place = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        unknown = np.flatnonzero(self.classes_[place] != labels)
        if len(unknown):
            row = int(unknown[0])
            few = ", ".join(map(str, self.classes_[:5].tolist()))
            more = ", …" if len(self.classes_) > 5 else ""
            raise LabelError(
                f"unknown label '{short(labels[row])}' in row {row}; there are: {few}{more}"
            )
        return torch.from_numpy(self._column[place])

    def _labels_like(self, names: Sequence[str]) -> Array:
        """Return labels, as a file of features names them, of the type that the classifier has."""
        try:
            return _labels_of(names, _kind_of_labels(self.classes_))
        except ValueError as error:
            raise LabelError(
                f"expected labels of type {self.classes_.dtype}, as those of the classifier, got "
                f"{', '.join(map(short, names[:3]))}"
            ) from error

    def _check_width(self, width: int) -> None:
        if width != self.n_features_in_:
            raise ShapeError(
                f"expected {self.n_features_in_} features per row, as the head has learned, got "
                f"{width}"
            )

    def _meet(self, width: int, columns: Sequence[str] = ()) -> None:
        """Take the size of a feature vector, and the names of its columns if they have any."""
        self.n_features_in_ = width
        self.__dict__.pop("feature_names_in_", None)
        if len(columns):
            if len(columns) != width or not all(isinstance(name, str) for name in columns):
                raise ShapeError(f"expected {width} names of columns, got {short(columns)}")
            self.feature_names_in_ = np.array(columns, dtype=object)

    def _in_rows(self, z: Tensor, columns: Sequence[str]) -> Divided:
        """Return features of a file as the head may see them, columns in the learned order."""
        self._check_width(z.shape[1])
        learned = getattr(self, "feature_names_in_", None)
        if learned is not None and len(columns) > 1 and list(columns) != learned.tolist():
            z = z[:, _order_of(columns, learned.tolist())]
        return Divided(z, self.feature_scale)

    def _batches(
        self, z: Divided, y: Tensor, epochs: int, held: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows to learn, all but those held out; those on disk are read a batch at a time."""
        learned = torch.ones(len(y), dtype=torch.bool)
        if held is not None:
            learned[held] = False
        if self.head_.passes is not None:  # in the order of the data, without a copy
            for _ in range(self.head_.passes):
                parts = (t.split(self.batch_size) for t in (y, learned))
                for some, own, wanted in zip(z.split(self.batch_size), *parts, strict=True):
                    yield some if held is None else some[wanted], own[wanted]
            return
        place = learned.nonzero().flatten()
        for _ in range(epochs):  # shuffled, since they see the data often
            generator = torch.Generator().manual_seed(int(self._random.randint(2**31)))
            for batch in shuffled_batches(len(place), self.batch_size, generator):
                rows = place[batch]
                yield z[rows], y[rows]

    def _named_batches(self, z: Divided, y: Tensor, epochs: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows to learn, then name their classes: so that is part of the head's change."""
        yield from self._batches(z, y, epochs)
        self._name_classes()

    def _logits(self, X: ArrayLike) -> Array:
        check_is_fitted(self, "head_")
        return self._in_order(self.head_(self._features(X)), -np.inf)

    def _features(self, X: ArrayLike) -> Tensor:
        z = validate_data(self, self._named(X), reset=False, **_FEATURES)
        return Divided(_tensor(z), self.feature_scale)[:]

    def _named(self, X: ArrayLike) -> ArrayLike:
        """Return a frame with the columns that were learned, whatever their order, in theirs.

        Other names are left to scikit-learn, which refuses them in its own words.
        """
        learned = getattr(self, "feature_names_in_", None)
        names = getattr(X, "columns", None)
        if learned is None or names is None or not hasattr(X, "__getitem__"):
            return X
        wanted, there = learned.tolist(), list(names)
        if not all(isinstance(name, str) for name in there):  # those of pyarrow are its columns
            return X
        mixed = there != wanted and Counter(there) == Counter(wanted)
        return X[wanted] if mixed and len(set(wanted)) == len(wanted) else X

    def _in_order(self, answers: Tensor, missing: float) -> Array:
        """Return answers (n, n_classes) of the head in the order of ``classes_``."""
        found: Array = answers.numpy()
        # A label that ``classes`` has only named has no column until it is seen.
        if lacking := len(self.classes_) - found.shape[1]:
            found = np.pad(found, ((0, 0), (0, lacking)), constant_values=missing)
        return found[:, self._column]

    def _check(self, X: ArrayLike, y: ArrayLike, reset: bool) -> tuple[Divided, Array]:
        self._check_options()
        named = X if reset else self._named(X)
        z, labels = validate_data(self, named, y, reset=reset, **_FEATURES)
        check_classification_targets(labels)
        return Divided(_tensor(z), self.feature_scale), labels

    def _check_options(self) -> None:
        if self.batch_size < 1:
            raise OptionError(f"expected batch_size of at least 1, got {self.batch_size}")
        if self.epochs is not None and self.epochs < 1:
            raise OptionError(f"expected epochs of at least 1, got {self.epochs}")
        if self.calibration is not None:
            a_share(self.calibration, "calibration")
        if not 0 < self.feature_scale < np.inf:
            raise OptionError(f"expected feature_scale above 0, got {self.feature_scale}")


# NaN is looked for here: scikit-learn does not say in which row it is.
_FEATURES: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": False}


def _tensor(z: Array) -> Tensor:
    """Return a tensor of a finite array; torch wants it writable and without negative strides."""
    tensor = torch.from_numpy(np.require(z, requirements=["C", "W"]))
    if not (are_usable(tensor) or tensor.isfinite().all()):
        raise bad_features(tensor)
    return tensor


def _order_of(columns: Sequence[str], learned: Sequence[str]) -> list[int]:
    """Return where each learned column is; refuse columns that are not the learned ones."""
    place = {name: at for at, name in enumerate(columns)}
    if place.keys() == set(learned) and len(place) == len(columns) == len(learned):
        return [place[name] for name in learned]
    missing = [f"'{name}' is missing" for name in learned if name not in place]
    new = [f"'{name}' was not among them" for name in columns if name not in set(learned)]
    found = [*missing[:3], *new[:3]] or ["some occur twice"]
    more = ", …" if len(missing) > 3 or len(new) > 3 else ""
    raise DataError(f"expected the columns that the head has learned: {', '.join(found)}{more}")


def text_labels(names: Sequence[str]) -> Array:
    """Return labels that are text; NumPy's own type would drop a NUL at the end of one."""
    return np.array(names, dtype=object if any(n.endswith("\0") for n in names) else np.str_)


def _kind_of_labels(labels: Array) -> str:
    """Return the name of the labels' type, so that names can be turned back into labels."""
    if labels.dtype.kind == "U":
        return "str"
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):
        return "object"
    if labels.dtype.kind in "biuf":
        return labels.dtype.name
    raise LabelError(f"expected labels that are text or numbers, got {labels.dtype}")


def _labels_of(names: Sequence[str], kind: str) -> Array:
    """Return the labels with these names, of a type that ``_kind_of_labels`` named."""
    if kind in ("str", "object"):
        return np.array(names, dtype=object) if kind == "object" else text_labels(names)
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        look = {"True": True, "False": False}
        return np.array([look_up(name, look, "label") for name in names])
    if dtype.kind in "iu":
        return np.array([int(name) for name in names], dtype=dtype)
    return np.array([float(name) for name in names], dtype=dtype)


def _settings_of(file: HeadFile, head: Head) -> dict[str, Any]:
    """Return what makes such a classifier; of a head's own file, what made the head."""
    kept = dict(file.parts.get("classifier", {}))
    kept.pop("random", None)
    if kept:
        kept["options"] = kept.get("options") or None
        scale = file.parts.get("feature_map", {}).get("divide_by", 1.0)
        return kept | {"feature_scale": scale}
    options = dict(head.options)
    mask, lr = options.pop("mask", None), options.pop("lr", None)
    given = {"head": file.name, "mask": mask, "lr": lr, "preset": head.preset}
    return given | {"options": options or None}
