"""The scikit-learn face of a head: fit, partial_fit and predict, for any labels."""

# ruff: noqa: N803  (scikit-learn calls the features X)

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from lastlayer.errors import OptionError
from lastlayer.heads import Head, make_head, options_of
from lastlayer.heads.head import Preset
from lastlayer.heads.undo import AllOrNothing
from lastlayer.training.batches import BATCH_SIZE, shuffled_batches

EPOCHS = 5  # as in the paper
STEPS = 200  # at least: a set of few batches is shown more often
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
        options: what else the head takes, such as {"shrinkage": 0.1} or {"k": 7}.
        random_state: of the shuffling and of what is random in the head.

    Attributes:
        classes_: the labels known so far, sorted.
        n_features_in_: the size of a feature vector.
        head_: the head; its classes 0…N−1 are the labels in the order of their arrival.

    >>> clf = HeadClassifier("mean").partial_fit([[0.0], [2.0]], ["dog", "dog"])
    >>> clf.partial_fit([[9.0]], ["cat"]).predict([[1.0], [7.0]]).tolist()
    ['dog', 'cat']
    """

    classes_: Array
    head_: Head
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
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from scratch; or, where that ends with an error, stay as before."""
        with self._all_or_nothing():
            z, labels = self._check(X, y, reset=True)
            self._begin(unique_labels(labels))
            steps_per_epoch = -(-len(labels) // self.batch_size)
            self._learn(z, labels, self.epochs or max(EPOCHS, -(-STEPS // steps_per_epoch)))
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Go on learning, as from the next task; ``classes`` may name labels to come.

        After an error nothing of the call is learned.
        """
        with self._all_or_nothing():
            first = not hasattr(self, "head_")
            z, labels = self._check(X, y, reset=first)
            known = np.unique(labels) if classes is None else unique_labels(labels, classes)
            if first:
                self._begin(known)
            else:
                self._welcome(known)
            with AllOrNothing(self.head_):  # keeps what is overwritten: at most the size of X
                self._learn(z, labels, self.epochs or EPOCHS)
        return self

    def predict(self, X: ArrayLike) -> Array:
        """Give the label with the largest logit."""
        winners = self._logits(X).argmax(axis=1)
        labels: Array = self.classes_[winners]
        return labels

    def predict_proba(self, X: ArrayLike) -> Array:
        """Give the softmax of the logits; for knn these are the shares of the vote."""
        logits = torch.from_numpy(self._logits(X))
        return np.asarray(torch.softmax(logits, dim=1))

    def decision_function(self, X: ArrayLike) -> Array:
        """Give the logits in the order of ``classes_``; of two classes, their difference.

        In place of −∞ stands a very low number, since scikit-learn's scores take numbers only.
        """
        logits = np.maximum(self._logits(X), LOWEST)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Be as before if the block ends with an error, an interrupt among them."""
        before = self.__dict__.copy()
        random = self._random.get_state() if hasattr(self, "_random") else None
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            if random is not None:
                self._random.set_state(random)
            raise

    def _begin(self, classes: Array) -> None:
        """Make a new head that knows these labels."""
        options = dict(self.options or {})
        if self.lr is not None:
            options["lr"] = self.lr
        self._random = check_random_state(self.random_state)
        if "seed" in options_of(self.head) and "seed" not in options:
            options["seed"] = int(self._random.randint(2**31))
        size = (self.n_features_in_, len(classes))
        head = make_head(self.head, *size, mask=self.mask, preset=self.preset, **options)
        self.head_ = head.double()  # as precise as scikit-learn
        self.classes_, self._column = classes, np.arange(len(classes))

    def _welcome(self, classes: Array) -> None:
        """Give labels not met before the next columns of the head; ``classes_`` stays sorted."""
        if len(classes) <= len(self.classes_) and np.isin(classes, self.classes_).all():
            return
        classes = unique_labels(self.classes_, classes)
        known = np.isin(classes, self.classes_)
        column = np.empty(len(classes), dtype=np.int64)
        column[known] = self._column
        column[~known] = np.arange(len(self.classes_), len(classes))
        self.classes_, self._column = classes, column

    def _learn(self, z: Tensor, labels: Array, epochs: int) -> None:
        y = torch.from_numpy(self._column[np.searchsorted(self.classes_, labels)])
        if self.head_.passes is not None:  # in the order of the data, without a copy
            for _ in range(self.head_.passes):
                for part in zip(z.split(self.batch_size), y.split(self.batch_size), strict=True):
                    self.head_.observe(*part)
            return
        for _ in range(epochs):  # shuffled, since they see the data often
            generator = torch.Generator().manual_seed(int(self._random.randint(2**31)))
            for rows in shuffled_batches(len(y), self.batch_size, generator):
                self.head_.observe(z[rows], y[rows])

    def _logits(self, X: ArrayLike) -> Array:
        check_is_fitted(self, "head_")
        z = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        logits: Array = self.head_(self._scaled(z)).numpy()
        # A label that ``classes`` has only named has no column until it is seen.
        if missing := len(self.classes_) - logits.shape[1]:
            logits = np.pad(logits, ((0, 0), (0, missing)), constant_values=-np.inf)
        return logits[:, self._column]

    def _check(self, X: ArrayLike, y: ArrayLike, reset: bool) -> tuple[Tensor, Array]:
        if self.batch_size < 1:
            raise OptionError(f"expected batch_size of at least 1, got {self.batch_size}")
        if self.epochs is not None and self.epochs < 1:
            raise OptionError(f"expected epochs of at least 1, got {self.epochs}")
        z, labels = validate_data(self, X, y, reset=reset, dtype=[np.float64, np.float32])
        check_classification_targets(labels)
        if not 0 < self.feature_scale < np.inf:
            raise OptionError(f"expected feature_scale above 0, got {self.feature_scale}")
        return self._scaled(z), labels

    def _scaled(self, z: Array) -> Tensor:
        return _tensor(z if self.feature_scale == 1 else z / self.feature_scale)


def _tensor(z: Array) -> Tensor:
    """Make a tensor of an array, which torch wants writable and without negative strides."""
    return torch.from_numpy(np.require(z, requirements=["C", "W"]))
