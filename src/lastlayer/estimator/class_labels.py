"""The labels of a classifier, of any type, and the classes 0…N−1 that they are to its head."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import unique_labels
from torch import Tensor

from lastlayer.core.checks import expect, kind_of, short
from lastlayer.core.names import class_name, listed, look_up
from lastlayer.data.label_values import check_lengths
from lastlayer.errors import LabelError, MergeError

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class ClassLabels:
    """Labels, each with its class; frozen, so that other threads see all or none of the new ones.

    >>> labels = ClassLabels.of(np.array(["dog"])).with_new(np.array(["cat"]))
    >>> labels.ordered.tolist(), labels.column.tolist(), labels.names
    (['cat', 'dog'], [1, 0], ['dog', 'cat'])
    """

    ordered: Array  # (n,) sorted, as scikit-learn wants them
    column: Array  # (n,) int64, the class of each

    @classmethod
    def of(cls, labels: Array) -> Self:
        """Return the labels of the classes 0 to n − 1."""
        column = np.argsort(labels, kind="stable")
        return cls(labels[column], column)

    def with_new(self, labels: Array) -> Self:
        """Assign the next classes to those of the labels that are new."""
        if len(labels) <= len(self.ordered) and np.isin(labels, self.ordered).all():
            return self
        self._check_alike(labels)
        ordered = unique_labels(self.ordered, labels)
        known = np.isin(ordered, self.ordered)
        column = np.empty(len(ordered), dtype=np.int64)
        column[known] = self.column
        column[~known] = np.arange(len(self.ordered), len(ordered))
        return type(self)(ordered, column)

    def classes_of(self, labels: Array, codes: Tensor) -> Tensor:
        """Return the classes (n,) of rows whose labels are ``labels[codes]``, all of them known."""
        self._check_alike(labels)
        place = np.searchsorted(self.ordered, labels).clip(max=len(self.ordered) - 1)
        column = np.where(self.ordered[place] == labels, self.column[place], -1)
        classes = torch.from_numpy(column)[codes]
        if len(unknown := (classes < 0).nonzero()):
            row = int(unknown[0])
            raise LabelError(
                f"unknown label '{short(labels[codes[row]])}' in row {row}; there are: "
                f"{listed([str(label) for label in self.ordered.tolist()])}"
            )
        return classes

    def _check_alike(self, labels: Array) -> None:
        """Refuse text where numbers were learned, and numbers where text was."""
        text, known_text = (a.dtype.kind in "OUS" for a in (labels, self.ordered))
        if text != known_text and len(labels) and len(self.ordered):
            known, got = (kind_of(a.tolist()[0]) for a in (self.ordered, labels))
            raise LabelError(f"each label must be {known}, as those learned before, got {got}")

    def like(self, names: Sequence[str]) -> Array:
        """Return labels with these names, of the type that the labels have."""
        if self.ordered.dtype.kind in "OU" and (numbers := self._only_numbers(names)):
            raise LabelError(
                f"labels must be text, as those learned before ({listed(self.names, 3)}), got only "
                f"numbers: {listed(numbers, 3)}"
            )
        try:
            return labels_of(names, self.kind)
        except ValueError as error:
            raise LabelError(
                f"labels must be of type {self.ordered.dtype}, as those of the classifier, got "
                f"{', '.join(map(short, names[:3]))}"
            ) from error

    def _only_numbers(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names where all of them are numbers and none of those learned is, else ()."""
        if not names or not all(map(_is_number, names)):  # before all that are known are looked at
            return ()
        known = self.names
        mixed = not known or any(map(_is_number, known)) or not set(names).isdisjoint(known)
        return () if mixed else names

    def coarser(self, answers: Mapping[Any, Any]) -> tuple[Array, Array]:
        """Return what labels stand for, sorted, and the place there of each label, in order.

        >>> labels = ClassLabels.of(np.array(["robin", "pike", "wren"]))
        >>> coarse, place = labels.coarser({"robin": "bird", "wren": "bird", "pike": "fish"})
        >>> labels.ordered.tolist(), coarse.tolist(), place.tolist()
        (['pike', 'robin', 'wren'], ['bird', 'fish'], [1, 0, 0])
        """
        given = [answers[label] for label in self.ordered.tolist()]
        text = any(isinstance(label, str) for label in given)
        coarse, place = np.unique(text_labels(given) if text else given, return_inverse=True)
        return coarse, place

    def in_order(
        self,
        found: Array,
        missing: float,
        answers: Mapping[Any, Any] | None,
        join: Callable[..., Array],
    ) -> Array:
        """Return what was found (n, n_classes) of the classes in the order of the labels.

        Of labels that stand for one label, by ``answers``, it is joined.
        """
        # A label that ``classes`` has only named has no column until it is seen.
        if lacking := len(self.ordered) - found.shape[1]:
            found = np.pad(found, ((0, 0), (0, lacking)), constant_values=missing)
        found = found[:, self.column]
        if answers is None:
            return found
        classes, place = self.coarser(answers)
        return np.stack([join(found[:, place == k], axis=1) for k in range(len(classes))], axis=1)

    def called(self, name: str) -> Any:
        """Return the label that a user calls by this name (``class_name``)."""
        return look_up(name, {class_name(str(x)): x for x in self.ordered.tolist()}, "class")

    def joined(self, other: "ClassLabels", names: Sequence[str]) -> "ClassLabels":
        """Return the labels of two classifiers together, whose classes have these names."""
        kinds = self.kind, other.kind
        types = [a.dtype for a in (self.ordered, other.ordered)]
        if len({"U" if t.kind == "O" else t.kind for t in types}) > 1:
            raise MergeError(
                f"labels must be of one type to be merged, got {kinds[0]} in the first and "
                f"{kinds[1]} in the second: fit one of them again, with labels of the other's type"
            )
        if types[0].kind in "OU":
            return ClassLabels.of(labels_of(names, "object" if "object" in kinds else "str"))
        return ClassLabels.of(labels_of(names, np.result_type(*types).name))

    @property
    def by_class(self) -> Array:
        """The label of each class, in the order of the classes."""
        return self.ordered[np.argsort(self.column)]

    @property
    def names(self) -> list[str]:
        """The names of the classes."""
        return list(map(str, self.by_class.tolist()))

    @property
    def kind(self) -> str:
        """The name of the labels' type, which a file keeps beside their names."""
        kind = self.ordered.dtype.kind
        if kind == "O" and all(isinstance(label, str) for label in self.ordered):
            return "object"
        if kind not in "Ubiuf":
            raise LabelError(f"labels must be text or numbers, got {self.ordered.dtype}")
        return "str" if kind == "U" else self.ordered.dtype.name


def check_answers(answers: Mapping[Any, Any] | None, labels: Array) -> None:
    """Refuse labels to learn that no answer is known for."""
    if answers is None:
        return
    expect(answers, Mapping, "answers", "a dict: {label learned: label answered}")
    if lacking := [str(label) for label in labels.tolist() if label not in answers]:
        raise LabelError(
            "every label that is learned needs one to answer, but answers has none for "
            f"{listed(lacking, 3)}"
        )


def joint_answers(
    one: Mapping[Any, Any], other: Mapping[Any, Any], error: type[LabelError | MergeError]
) -> dict[Any, Any]:
    """Return what labels stand for by two tables; refuse a label that stands for two things.

    >>> joint_answers({"wren": "bird"}, {"pike": "fish"}, MergeError)
    {'wren': 'bird', 'pike': 'fish'}
    """
    for label in one.keys() & other.keys():
        if one[label] != other[label]:
            raise error(
                f"{short(label)} must stand for one label, got {short(one[label])} and "
                f"{short(other[label])}"
            )
    return {**one, **other}


def _is_number(name: str) -> bool:
    return name.removeprefix("-").isdecimal()


def text_labels(names: Sequence[str]) -> Array:
    """Return labels that are text; NumPy's own type would drop a NUL at the end of one."""
    check_lengths(names)
    return np.array(names, dtype=object if any(n.endswith("\0") for n in names) else np.str_)


def labels_of(names: Sequence[str], kind: str) -> Array:
    """Return the labels with these names, of a type that ``ClassLabels.kind`` named."""
    if kind in ("str", "object"):
        return np.array(names, dtype=object) if kind == "object" else text_labels(names)
    dtype = np.dtype(kind)
    if dtype.kind == "b":
        return np.array([look_up(name, {"True": True, "False": False}, "label") for name in names])
    number = int if dtype.kind in "iu" else float
    return np.array([number(name) for name in names], dtype=dtype)
