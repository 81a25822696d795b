"""The scikit-learn face of a head: fit, partial_fit and predict, for any labels.

Arrays are converted once, to features, codes and the labels that the codes stand for; files come
as such (``fitting``). From there on both take the same path.
"""

# ruff: noqa: N803  (scikit-learn calls the features X)

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from lastlayer.core.checks import expect, short, whole
from lastlayer.core.tensors import are_usable, bad_features, check_not_tiny
from lastlayer.data.feature_columns import (
    check_width,
    columns_in_order,
    frame_in_learned_order,
    joint_columns,
    learned_columns,
)
from lastlayer.data.hold_out import draw_share
from lastlayer.data.made_by import Maker, refuse_others
from lastlayer.errors import (
    DataError,
    LabelError,
    MergeError,
    NotLearnedError,
    OptionError,
)
from lastlayer.estimator.class_labels import ClassLabels, check_answers, joint_answers, text_labels
from lastlayer.estimator.classifier_file import read_classifier, write_classifier
from lastlayer.evaluate.pool import BATCH_SIZE
from lastlayer.evaluate.training_rows import (
    Divided,
    balanced,
    batches,
    in_order,
    weights_of,
)
from lastlayer.heads import Head, make_head, options_of
from lastlayer.heads.answering import make_ready
from lastlayer.heads.calibration import a_share
from lastlayer.heads.changes import merge as merge_heads
from lastlayer.heads.class_names import called
from lastlayer.heads.export import as_module
from lastlayer.heads.first_rows import LOOKED_AT, FirstRows
from lastlayer.heads.forgotten import (
    HELD_OUT,
    not_learned,
    note_forgotten,
    note_held_out,
    note_learned,
    refuse,
)
from lastlayer.heads.graph import Inference
from lastlayer.heads.head import Preset
from lastlayer.heads.onnx_file import write_onnx
from lastlayer.heads.too_large import refuse_too_large, squares_learned
from lastlayer.heads.undo import Lock, settle

if TYPE_CHECKING:
    from lastlayer.data.rows import Rows

_OPTION = "options__"  # before the name of an option, where one of them is set
PIECE = 1 << 13  # rows that are looked at in one go
LOWEST = float(np.finfo(np.float32).min)  # in place of −∞ where scikit-learn wants a number

Array = NDArray[Any]


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
        options: what else the head takes, such as {"shrinkage": 0.1} or {"k": 7}; in
            ``set_params``, and so in a grid, also ``options__shrinkage``.
        class_weight: {label: weight}, by which the weight of each of its samples is multiplied, and
            with which classes are as probable as they weigh; or "balanced": all classes weigh the
            same, by the counts of all that was ever learned.
        answers: {label learned: label answered}, of labels finer than those that are asked for:
            the answer is what the likeliest of them stands for, and as probable as they are
            together. Every label that is learned needs one.
        calibration: the share of rows of each class that ``fit`` does not learn, but calibrates
            with, so that probabilities mean something and ``predict_or_unknown`` can be asked.
        random_state: of the shuffling, of the rows held out, and of what is random in the head.

    Attributes:
        classes_: the labels that it may answer so far, sorted.
        n_features_in_: the size of a feature vector.
        feature_names_in_: the names of its columns, where the data first learned had names. Later
            columns are put in this order by their names; other names are refused.
        head_: the head; its classes 0…N−1 are the labels in the order of their arrival.
        labels_: the labels that were learned, with the head's class of each.
        made_by_: what made the features that were learned, where that is known: a dict of backbone,
            weights and normalisation. Features that another maker made are refused.

    >>> clf = HeadClassifier("mean").partial_fit([[0.0], [2.0]], ["dog", "dog"])
    >>> clf.partial_fit([[9.0]], ["cat"]).predict([[1.0], [7.0]]).tolist()
    ['dog', 'cat']
    """

    head_: Head
    labels_: ClassLabels
    made_by_: Maker

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
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        answers: dict[Any, Any] | None = None,
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
        self.class_weight = class_weight
        self.answers = answers
        self.calibration = calibration
        self.random_state = random_state

    @property
    def classes_(self) -> Array:
        """The labels that it may answer so far, sorted."""
        return (
            self.labels_.ordered if self.answers is None else self.labels_.coarser(self.answers)[0]
        )

    @property
    def n_answers(self) -> int:
        """How many labels it answers now: those forgotten, or only declared, are no answers."""
        return int(self.in_order(self.head_.seen[None], False).sum())

    @property
    def origin_(self) -> list[str]:
        """What it was learned from, in sentences, where that was many files."""
        return list(self.head_.records.get("origin", ()))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments that make it; ``deep``: its options also one by one."""
        found: dict[str, Any] = super().get_params(deep=False)
        options = self.options if deep and isinstance(self.options, Mapping) else {}
        return found | {f"{_OPTION}{name}": value for name, value in options.items()}

    def set_params(self, **params: Any) -> Self:
        """Set some of them; ``options__k=7`` sets one option, and leaves the others."""
        own = {name: value for name, value in params.items() if name.startswith(_OPTION)}
        super().set_params(**{name: value for name, value in params.items() if name not in own})
        if own:
            named = {name.removeprefix(_OPTION): value for name, value in own.items()}
            self.options = {**(self.options or {}), **named}
        return self

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from scratch; on error, stay as before.

        A row counts as often as its weight says; heads that cannot take weights refuse them.
        """
        with self.all_or_nothing():
            z, codes, labels = self._of_arrays(X, y, reset=True)
            self._begin(labels)
            weight = self._weights(sample_weight, codes, whole=True)
            if weight and not weight[0].any():
                raise DataError("sample_weight must not be zero for every row")
            held = self._learn(z, (codes, *weight), first=True, share=self.calibration)
            if held is not None:
                self.head_.calibrate(*held)
        return self

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Keep learning, as from the next task; ``classes`` may name labels to come.

        It learns every row: what was calibrated is out of date until ``calibrate``. After an error
        nothing of the call is learned.
        """
        with self.all_or_nothing():
            first = not hasattr(self, "head_")
            z, codes, labels = self._of_arrays(X, y, reset=first)
            if not first:
                self.look_at(z, "learned")
            known = labels if classes is None else unique_labels(labels, classes)
            if first:
                self._begin(known)
            with self.head_.lock:
                check_answers(self.answers, known)
                self.labels_ = self.labels_.with_new(known)
                own = self.labels_.classes_of(labels, codes)
                weight = self._weights(sample_weight, own)
                self._refuse_too_large(z)
                self.head_.observe_all(self._named_batches(z, (own, *weight)))
                self._note_learned(z, own)
        return self

    def calibrate(self, X: ArrayLike, y: ArrayLike, living: bool = False) -> Self:
        """Calibrate on rows that were not learned; see ``Head.calibrate``."""
        with self._locked():
            self.head_.calibrate(*self._known(X, y), living)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Return the label with the largest logit."""
        with self._locked():
            return self._winners(self.head_(self._of_array(X)))

    def predict_or_unknown(
        self, X: ArrayLike, unknown: float = 0.05, unknown_label: object = None
    ) -> Array:
        """Return the label, or ``unknown_label`` where an input is too strange to be of any class.

        At most the share ``unknown`` of inputs like those of the calibration is turned away (on
        average over calibrations, and over all classes together); of what is of no class, as much
        as can be told. Needs ``calibration=`` or ``calibrate``, with at least 1/unknown − 1 rows.

        >>> random = np.random.default_rng(0)
        >>> X, y = random.normal(size=(400, 2)), np.repeat(["dog", "cat"], 200)
        >>> X[200:] += 9
        >>> clf = HeadClassifier("slda", calibration=0.2, random_state=0).fit(X, y)
        >>> clf.predict_or_unknown([[0, 0], [9, 9], [0, 30]]).tolist()
        ['dog', 'cat', None]
        """
        with self._locked():
            if unknown_label in self.classes_.tolist():
                raise OptionError(
                    f"unknown_label must not be one of the classes, got {short(unknown_label)}"
                )
            limit = self.head_.limit(unknown)
            logits, novelty = self.head_.judge(self._of_array(X))
            labels = self._winners(logits)
        other = np.array([unknown_label])
        if other.dtype.kind != labels.dtype.kind:
            labels, other = labels.astype(object), other.astype(object)
        return np.where((novelty > limit).numpy(), other, labels)

    def novelty(self, X: ArrayLike) -> Array:
        """Return how strange each input is: the larger, the less like anything learned."""
        with self._locked():
            return self.head_.novelty(self._of_array(X)).numpy()

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return how probable each label is, in the order of ``classes_``.

        They mean what they say if the classifier was calibrated. If not, they are the softmax of
        the logits, over the head's own temperature where it has one (``Head.probabilities``); for
        knn the shares of the vote. If it has learned since it was calibrated, they are by the
        temperature of before, with a CalibrationWarning.
        """
        with self._locked():
            return self.in_order(self.head_.probabilities(self._of_array(X)), 0, np.sum)

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the logits in the order of ``classes_``; of two classes, their difference.

        A very low number replaces −∞, since scikit-learn's scores accept only finite numbers.
        """
        with self._locked():
            logits = np.maximum(self.in_order(self.head_(self._of_array(X)), -np.inf), LOWEST)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def forget(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        again: bool = False,
        skip_not_learned: bool = False,
    ) -> Self:
        """Make it as if these samples with these labels had never been learned.

        Weights are those that they were learned with, or a part of them.
        A head that cannot do so exactly, labels that it does not know, and samples that it cannot
        have seen are refused, and nothing is changed; ``head_.proof`` says what that proves. So are
        rows that were held out to calibrate with, or forgotten before, unless ``skip_not_learned``
        leaves them out, or ``again`` says that the head has learned copies of them.

        >>> clf = HeadClassifier("mean").fit([[0.0], [2.0], [9.0]], ["dog", "dog", "cat"])
        >>> clf.forget([[2.0]], ["dog"]).predict_proba([[0.0]]).round(3).tolist()
        [[0.0, 1.0]]
        """
        with self._locked():
            self.forget_rows(*self._known(X, y), sample_weight, again, skip_not_learned)
        return self

    def forget_rows(
        self, z: Tensor, y: Tensor, given: ArrayLike | None = None, again: bool = False,
        skip_not_learned: bool = False, numbers: Tensor | None = None,
    ) -> dict[str, list[int]]:  # fmt: skip
        """Forget rows as the head sees them, see ``forget``; return those left out, by reason.

        Rows with weights may be forgotten in parts, so of them nothing is refused or kept.
        ``numbers`` (n,) is what to call the rows, if not 0…n−1.
        """
        if again and skip_not_learned:
            raise OptionError("skip_not_learned and again contradict each other: choose one")
        with self._locked():
            weight = self._weights(given, y)
            found = {} if weight or again else not_learned(self.head_, z, y)
            if not skip_not_learned:
                refuse(found, len(y), numbers)
            elif found:
                stays = torch.ones(len(y), dtype=torch.bool)
                stays[[row for rows in found.values() for row in rows]] = False
                z, y = z[stays], y[stays]
            self.head_.forget(z, y, *weight)
            if not weight:
                note_forgotten(self.head_, z, y)
        return found

    def forget_class(self, label: object) -> Self:
        """Make it as if a label had never been seen; ``forget`` takes its samples elsewhere."""
        with self._locked():
            code = torch.zeros(1, dtype=torch.int64)
            self.head_.forget_class(int(self.labels_.classes_of(np.asarray([label]), code)))
        return self

    def fresh(self) -> Self:
        """Return such a classifier that has learned nothing, to be merged with this one.

        It has the same settings, columns, classes in the same order and map, if its head has one.
        """
        with self._locked():
            if missing := self.head_.rows_to_begin:
                raise OptionError(
                    "the map of a head must be fixed for others to begin like it: fit it on "
                    f"{missing} more rows"
                )
            head = self.head_.fresh(len(self.labels_.names)).double()
            head.class_names = self.labels_.names
            return self._with(head, self.labels_, self.column_names, self.maker)

    def merge(self, other: "HeadClassifier", accept_features: bool = False) -> Self:
        """Return a new classifier, equal to one that had learned everything that both have.

        Labels are matched by name, in whatever order they came, and so are columns that have names.
        Both heads must be made with the same settings, and one behind a map with the same map
        (``fresh``). What was calibrated is out of date. Features that other makers made are refused
        unless ``accept_features``.

        >>> one = HeadClassifier("mean").fit([[0.0], [9.0]], ["dog", "cat"])
        >>> both = one.merge(HeadClassifier("mean").fit([[4.0], [30.0]], ["dog", "ant"]))
        >>> both.classes_.tolist(), both.head_.class_counts.tolist(), both.head_.class_names
        (['ant', 'cat', 'dog'], [1, 2, 1], ['cat', 'dog', 'ant'])
        """
        expect(other, HeadClassifier, "other", "a HeadClassifier")
        check_is_fitted(self, "head_")
        check_is_fitted(other, "head_")
        if self.feature_scale != other.feature_scale:
            raise MergeError(
                f"features must be divided by one number to be merged, but feature_scale is "
                f"{self.feature_scale} in the first and {other.feature_scale} in the second"
            )
        if not accept_features:
            what = "the features that the second head has learned were"
            refuse_others(other.maker, self.maker, what)
        # In one order, whichever of two threads merges which with which.
        first, second = sorted((self.head_, other.head_), key=id)
        with first.lock, second.lock:
            columns, order = joint_columns(self.column_names, other.column_names)
            head = merge_heads(self.head_, other.head_, order)
            labels = self.labels_.joined(other.labels_, head.class_names or ())
        if (self.answers is None) != (other.answers is None):
            raise MergeError(
                "one head answers coarser labels than it learns, and the other does not"
            )
        merged = self._with(head, labels, columns, {**other.maker, **self.maker})
        merged.answers = joint_answers(self.answers or {}, other.answers or {}, MergeError) or None
        return merged

    def _with(self, head: Head, labels: ClassLabels, columns: Sequence[str], maker: Maker) -> Self:
        """Return a classifier of the same settings with another head."""
        made = type(self)(**self.get_params(deep=False))
        made._random = check_random_state(made.random_state)
        made._meet(head.in_features, columns)
        made.head_, made.labels_ = head, labels
        made.note_maker(maker)
        made._begin_to_look()
        return made

    def as_module(
        self, unknown: float | None = None, dtype: torch.dtype | None = None
    ) -> Inference:
        """Return what answers as a module, as ``Head.as_module`` does.

        Its classes are ``head_.class_names``, in their order; what they stand for, if they do, is
        ``about["answers"]``.
        """
        check_is_fitted(self, "head_")
        made = as_module(self.head_, unknown, dtype, float(self.feature_scale))
        if self.answers is not None:
            by_name = {str(label): str(answer) for label, answer in self.answers.items()}
            made.about["answers"] = [by_name[name] for name in made.about["class_names"]]
        return made

    def export_onnx(
        self,
        path: str | os.PathLike[str],
        unknown: float | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Write ``as_module(unknown, dtype)`` to an ONNX file, with the labels in its metadata."""
        write_onnx(self.as_module(unknown, dtype), path)

    def save(self, path: str | os.PathLike[str], solve: bool = True) -> None:
        """Write it to the file of its head, a safetensors file, with its labels and settings.

        ``solve``: what it answers by is solved before, so that nobody who loads it need do so.
        """
        with self._locked():
            # A head that cannot answer, not yet or not any more, is saved as it is.
            with suppress(NotLearnedError, DataError):
                if solve:
                    make_ready(self.head_)
            write_classifier(path, self.get_params(deep=False), self.__dict__)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote, or any head's file; ``partial_fit`` continues it."""
        loaded = read_classifier(path, cls)
        loaded._begin_to_look()
        return loaded

    def learn(self, rows: "Rows", share: float | None = None) -> tuple[Tensor, Tensor] | None:
        """Learn rows of a file in batches; return those held out, for ``head_.calibrate``.

        A first call is ``fit``, and the head's classes are then these; a later one ``partial_fit``.
        After an error it has learned the batches before: nothing is kept to undo them, since the
        rows may be more than the memory holds. A ``share`` of the rows of each class is held out.
        """
        self._check_options()
        first, y = not hasattr(self, "head_"), rows.labelled
        if first:
            # A single name is that of a column of vectors, and says nothing of their order.
            self._meet(rows.z.shape[1], rows.columns if len(rows.columns) > 1 else ())
        z = self.divided(rows, "" if first else "learned")
        labels = self._welcome(rows.names, y.unique())
        self.note_maker(rows.made_by)
        self.head_.class_names = self.labels_.names
        own = self.labels_.classes_of(labels, y)
        held = self._learn(z, (own, *self._weights(rows.weight, own)), first, share)
        # Rows that wait to be folded in are folded now, as a file would: so it makes no difference,
        # to the bit, whether the head is kept in one between two calls.
        _ = self.head_.class_counts
        return held

    def seen(self, rows: "Rows") -> tuple[Tensor, Tensor]:
        """Return rows of a file as the head sees them: features, and its classes."""
        check_is_fitted(self, "head_")
        z, labels = self.divided(rows), self.labels_.like(rows.names)
        return z[:], self.labels_.classes_of(labels, rows.labelled)

    def features_of(self, X: ArrayLike) -> Tensor:
        """Return features as the head sees them, of any form that ``predict`` takes."""
        with self._locked():
            return self._of_array(X)

    def numbers_of(self, y: ArrayLike) -> Tensor:
        """Return the head's class (n,) of each label; of labels that are new, the next ones."""
        with self._locked():
            labels, codes = np.unique(np.asarray(y), return_inverse=True)
            labels = text_labels(labels.tolist()) if labels.dtype.kind == "O" else labels
            own = self.labels_.with_new(labels) if len(labels) else self.labels_
            return own.classes_of(labels, torch.from_numpy(codes))

    def begin_with(self, width: int, columns: Sequence[str], names: Sequence[str]) -> Tensor:
        """Take the columns of what will be learned, and its classes; return their numbers."""
        self._check_options()
        if not hasattr(self, "head_"):
            self._meet(width, columns)
        check_width(width, self.n_features_in_)
        every = torch.arange(len(names))
        labels = self._welcome(names, every)
        return self.labels_.classes_of(labels, every)

    def note(self, said: str) -> None:
        """Record in a sentence what the head was shown, for its file."""
        self.head_.records["origin"] = [*self.origin_, said]

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Restore the state before the block if it ends with an error or an interrupt."""
        before = self.__dict__.copy()
        random = self._random.get_state() if hasattr(self, "_random") else None
        try:
            yield
        except BaseException:
            if not self._has_learned_new(before):
                # Never empty in between: other threads may ask.
                self.__dict__.update(before)
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
        return len(before["labels_"].ordered) < len(self.classes_) == len(names)

    def _locked(self) -> Lock:
        """Return the head's lock: what it has learned and its labels change together."""
        check_is_fitted(self, "head_")
        return self.head_.lock

    def _begin(self, labels: Array) -> None:
        """Make a new head whose classes are these labels, in this order."""
        check_answers(self.answers, labels)
        options = balanced(self.head, self.options) if self.class_weight == "balanced" else {}
        if isinstance(self.class_weight, Mapping) and "prior" in options_of(self.head):
            options["prior"] = "empirical"  # else weights would not make a class more probable
        options |= self.options or {}
        if self.lr is not None:
            options["lr"] = self.lr
        self.__dict__.pop("made_by_", None)
        self._begin_to_look()
        self._random = check_random_state(self.random_state)
        if "seed" in options_of(self.head) and "seed" not in options:
            options["seed"] = int(self._random.randint(2**31))
        size = (self.n_features_in_, len(labels))
        head = make_head(self.head, *size, mask=self.mask, preset=self.preset, **options)
        # As precise as scikit-learn.
        self.head_ = head.double()
        self.labels_ = ClassLabels.of(labels)
        self.head_.class_names = self.labels_.names

    def _welcome(self, names: Sequence[str], used: Tensor) -> Array:
        """Return the labels with these names; those used are known from now on.

        The first labels that there are begin a new head, whether they are used or not.
        """
        if not hasattr(self, "head_"):
            labels = text_labels(names)
            self._begin(labels)
        else:
            labels = self.labels_.like(names)
            check_answers(self.answers, labels[used.numpy()])
            self.labels_ = self.labels_.with_new(labels[used.numpy()])
        return labels

    def _meet(self, width: int, columns: Sequence[str] = ()) -> None:
        """Take the size of a feature vector, and the names of its columns if they have any."""
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.update(learned_columns(width, columns))

    def _weights(
        self, given: ArrayLike | None, y: Tensor, whole: bool = False
    ) -> tuple[Tensor, ...]:
        """Return what rows of classes (n,) weigh; (): each 1."""
        labels = self.labels_.by_class
        return weights_of(y, given, self.class_weight, self.head_, labels, whole)

    def _learn(
        self, z: Divided, of: Sequence[Tensor], first: bool, share: float | None
    ) -> tuple[Tensor, Tensor] | None:
        """Learn rows, of classes and weights, but for a share of each class; return that share."""
        y = of[0]
        learned, held = torch.ones(len(y), dtype=torch.bool), None
        if share is not None:
            share = a_share(share, "calibration")
            held = draw_share(y, share, self._random, partial(called, self.head_))
            learned[held] = False
        if not first:
            self._refuse_too_large(z)
        for batch in self._batches(z, of, learned, first):
            self.head_.observe(*batch)
        self._note_learned(z, y, learned)
        if held is None:
            return None
        note_held_out(self.head_, z[held], y[held], in_order(z, of, self.batch_size, learned))
        return z[held], y[held]

    def _refuse_too_large(self, z: Divided) -> None:
        """Refuse to learn further rows that would ruin what was learned before."""
        squares = squares_learned(self.head_)
        for start, rows in enumerate(z.split(PIECE)) if squares else ():
            refuse_too_large(self.head_, rows, squares, start * PIECE)

    def _note_learned(self, z: Divided, y: Tensor, learned: Tensor | None = None) -> None:
        """Keep that rows are learned of which some may have been held out before."""
        if HELD_OUT in self.head_.records:
            learned = torch.ones(len(y), dtype=torch.bool) if learned is None else learned
            for rows, classes in in_order(z, (y,), self.batch_size, learned):
                note_learned(self.head_, HELD_OUT, rows, classes)

    def _batches(
        self, z: Divided, of: Sequence[Tensor], learned: Tensor, first: bool
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield the rows to learn as often as the head wants to see them."""
        how: dict[str, Any] = {"size": self.batch_size, "epochs": self.epochs, "first": first}
        return batches(z, of, learned, self.head_, self._random, **how)

    def _named_batches(self, z: Divided, of: Sequence[Tensor]) -> Iterator[tuple[Tensor, ...]]:
        """Yield rows to learn, then name their classes: so that is part of the head's change."""
        yield from self._batches(z, of, torch.ones(len(of[0]), dtype=torch.bool), first=False)
        self.head_.class_names = self.labels_.names

    @property
    def column_names(self) -> list[str]:
        """What the columns of features are called, in the learned order; empty: no names."""
        return self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else []

    @property
    def maker(self) -> Maker:
        """What made the features that were learned; {}: that is not known."""
        return getattr(self, "made_by_", {})

    def note_maker(self, maker: Maker) -> None:
        """Keep what is now known of what made the features; what was known stays."""
        if maker:
            self.made_by_ = {**maker, **self.maker}

    def divided(self, rows: "Rows", look: str = "asked") -> Divided:
        """Return features of a file as the head may see them, columns in the learned order."""
        check_width(rows.z.shape[1], self.n_features_in_, rows.columns)
        z = Divided(columns_in_order(rows.z, rows.columns, self.column_names), self.feature_scale)
        if not rows.accepted:
            refuse_others(rows.made_by, self.maker)
            if look:
                self.look_at(z, look)
        return z

    def _begin_to_look(self) -> None:
        """Look again at the first rows asked about, and at the first to learn further."""
        self._first = {"asked": FirstRows(), "learned": FirstRows(again=False)}

    def look_at(self, z: Divided, what: str) -> None:
        """Warn, once, if the first rows asked about, or learned further, are of other features."""
        said = "asked about" if what == "asked" else "to learn further"
        self._first[what].warn(self.head_, z[:LOOKED_AT], said)

    def _of_array(self, X: ArrayLike) -> Tensor:
        """Return the features of an array or a frame, as the head may see them."""
        frame = frame_in_learned_order(X, self.column_names)
        z = validate_data(self, frame, reset=False, **_FEATURES)
        seen = Divided(_tensor(z), self.feature_scale)
        self.look_at(seen, "asked")
        return seen[:]

    def _known(self, X: ArrayLike, y: ArrayLike) -> tuple[Tensor, Tensor]:
        """Return rows of known labels as the head sees them: features, and its classes."""
        z, codes, labels = self._of_arrays(X, y)
        self.look_at(z, "asked")
        return z[:], self.labels_.classes_of(labels, codes)

    def _of_arrays(
        self, X: ArrayLike, y: ArrayLike, reset: bool = False
    ) -> tuple[Divided, Tensor, Array]:
        """Return features, codes (n,) of their labels, and the labels (k,), sorted."""
        self._check_options()
        frame = X if reset else frame_in_learned_order(X, self.column_names)
        z, given = validate_data(self, frame, y, reset=reset, **_FEATURES)
        check_classification_targets(given)
        if given.dtype.kind == "O" and not all(isinstance(label, str) for label in given):
            raise LabelError("labels must be all text or all numbers, got both")
        labels, codes = np.unique(given, return_inverse=True)
        labels = text_labels(labels.tolist()) if labels.dtype.kind in "OU" else labels
        tensor = _tensor(z)
        check_not_tiny(tensor)
        return Divided(tensor, self.feature_scale), torch.from_numpy(codes), labels

    def _winners(self, logits: Tensor) -> Array:
        labels: Array = self.classes_[self.in_order(logits, -np.inf).argmax(axis=1)]
        return labels

    def in_order(
        self, answers: Tensor, missing: float, join: Callable[..., Array] = np.max
    ) -> Array:
        """Return answers (n, n_classes) of the head in the order of ``classes_``.

        Those for labels that stand for one label are joined: of logits the largest.
        """
        return self.labels_.in_order(answers.numpy(), missing, self.answers, join)

    def answer_by(self, answers: Mapping[Any, Any]) -> None:
        """Answer labels that are yet to be learned by what they stand for, as ``answers`` does."""
        if hasattr(self, "head_") and self.answers is None:
            raise OptionError(
                "this head answers with the labels that it learns: fit a new one to answer others"
            )
        self.answers = joint_answers(self.answers or {}, answers, LabelError)

    def _check_options(self) -> None:
        whole(self.batch_size, "batch_size", least=1)
        if self.epochs is not None:
            whole(self.epochs, "epochs", least=1)
        if self.calibration is not None:
            a_share(self.calibration, "calibration")
        if not 0 < self.feature_scale < np.inf:
            raise OptionError(f"feature_scale must be above 0, got {self.feature_scale}")


# NaN is looked for here: scikit-learn does not say in which row it is.
_FEATURES: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": False}


def _tensor(z: Array) -> Tensor:
    """Return a tensor of a finite array; torch wants it writable and without negative strides."""
    tensor = torch.from_numpy(np.require(z, requirements=["C", "W"]))
    if not (are_usable(tensor) or tensor.isfinite().all()):
        raise bad_features(tensor)
    return tensor
