"""The features of a data set: its splits, what the labels mean, and where they come from."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from numbers import Real
from typing import Any, Self

from torch import Tensor

from lastlayer.core import tensor_files
from lastlayer.core.checks import expect, real
from lastlayer.core.names import ClassName, class_name, printable
from lastlayer.core.tensors import unit_rows
from lastlayer.data.corrections import Corrections, Suspects
from lastlayer.data.feature_columns import column_names
from lastlayer.data.feature_set import FeatureSet
from lastlayer.data.from_arrays import Say, assemble
from lastlayer.data.made_by import maker_of
from lastlayer.data.table_rows import Piece, names_of_columns, read_splits
from lastlayer.data.tables.frames import open_frame
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import (
    DrawnTestWarning,
    FileFormatError,
    LabelError,
    OptionError,
    ShapeError,
)

# How a file names classes: as ``class_name`` does; 0.2 left backslashes as they were.
NAME_CODE = 1


@dataclass(frozen=True)
class Origin:
    """Where features come from, in words; unknown parts are empty."""

    dataset: str = ""
    backbone: str = ""
    weights: str = ""  # a digest of the backbone's weights
    normalisation: str = ""
    made: str = ""

    def __post_init__(self) -> None:
        """Take text only, and make it printable."""
        for name, value in vars(self).items():
            expect(value, str, name, "text")
            object.__setattr__(self, name, printable(value))


@dataclass(frozen=True, eq=False, repr=False)
class Features:
    """The frozen features of a data set.

    >>> from lastlayer import load_features
    >>> data = load_features("cifar100")
    >>> data
    Features(50000 train, 10000 test, 64 features, labels: fine (100), coarse (20))
    >>> data.label, data.n_classes, data.names["coarse"][:2], data.origin.backbone
    ('fine', 100, ('aquatic_mammals', 'fish'), 'resnet20-cifar100')
    """

    train: FeatureSet
    test: FeatureSet
    names: Mapping[str, tuple[str, ...]]  # per label column, what ``class_name`` calls each class
    origin: Origin = field(default_factory=Origin)
    fingerprint: str = ""  # a digest of the content, taken when it is not given
    validation: FeatureSet | None = None  # a third split, where one was brought
    columns: tuple[str, ...] = ()  # what the columns of z are called, where they have names

    def __post_init__(self) -> None:
        """Check that the two splits and the names fit together."""
        for name in ("train", "test"):
            expect(getattr(self, name), FeatureSet, name, "a FeatureSet")
        expect(self.origin, Origin, "origin", "an Origin")
        object.__setattr__(self, "names", _class_names(self.names))
        expect(self.validation, (FeatureSet, type(None)), "validation", "a FeatureSet or None")
        for name, split in self.splits.items():
            if self.train.in_features != split.in_features:
                raise ShapeError(
                    f"{name} features must have {self.train.in_features} columns as train, got "
                    f"{split.in_features}"
                )
            if self.train.label != split.label:
                raise LabelError(
                    f"{name} labels must be '{self.train.label}' as train, got '{split.label}'"
                )
        for column in self.train.labels:
            self._check_names(column)
        object.__setattr__(self, "columns", column_names(self.in_features, self.columns))
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", tensor_files.fingerprint(self._tensors()))

    @classmethod
    def from_arrays(
        cls,
        z: Any,
        y: Any,
        *,
        test: float | tuple[Any, ...] = 0.2,
        seed: int = 0,
        made_by: str = "",
        **columns: Any,
    ) -> Self:
        """Take features (n, h) and labels (n,) of any type from numpy, torch or lists.

        Args:
            z: Training features; float16 is kept, all else becomes float32.
            y: Their labels, the primary column; numbers or text.
            test: The test set ``(z, y)`` or ``(z, y, {column: values})``, or the part of each
                class to draw for it.
            seed: Decides that draw.
            made_by: The name of the backbone or text model that made the features.
            **columns: Further label columns, such as ``session=…``.

        The names of classes are kept as text, of at most 1000 characters; control characters in
        them are spelt out as Python writes them, so that any name can be printed and drawn, and
        different labels have different names (``lastlayer.core.names.class_name``).

        >>> data = Features.from_arrays([[0.0], [1.0], [2.0]], ["cat", "dog", "cat"],
        ...                             test=([[0.5]], ["dog"]), session=[1, 1, 2])
        >>> data
        Features(3 train, 1 test, 1 features, labels: y (2), session (2))
        >>> data.train.y.tolist(), data.names["y"]
        ([0, 1, 0], ('cat', 'dog'))
        """
        columns, origin = {"y": y, **columns}, Origin(backbone=made_by)
        if isinstance(test, Real):
            made, names = assemble({"": (z, columns)}, real(test, "test"), seed)
            return cls.of_splits(made, names, origin)
        if not isinstance(test, tuple) or len(test) not in (2, 3):
            parts = f"{len(test)} parts" if isinstance(test, tuple) else type(test).__name__
            raise OptionError(
                f"test must be a tuple (z, y) or (z, y, columns), or the part to draw, got {parts}"
            )
        further = test[2] if len(test) == 3 else {}
        expect(further, Mapping, "the columns of test", "a table of names and values")
        brought = test[0], {"y": test[1], **further}
        made, names = assemble({"train": (z, columns), "test": brought})
        return cls.of_splits(made, names, origin)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        embedding: str | None = None,
        label: str | None = None,
        domains: Sequence[str] = (),
        *,
        split: str | None = None,
        test: float | None = None,
        seed: int = 0,
        made_by: str = "",
    ) -> Self:
        """Take embeddings and labels from a frame of pandas, polars or any other with Arrow.

        Args:
            frame: The table.
            embedding: A column with a list of numbers in each row; or columns of numbers, by
                prefix (``z_*``) or range (``z_0:z_383``). May be left out if there is only one.
            label: The column to learn; may be left out if it is named y, label or target.
            domains: Further columns to keep as labels.
            split: The column that says ``train``, ``validation`` or ``test``; one named ``split``
                is used as such.
            test: Where there is none, the part of each class to draw as test; if not given, 0.2,
                with a ``DrawnTestWarning``.
            seed: Decides that draw.
            made_by: The name of the backbone or text model that made the embeddings.

        >>> import polars as pl
        >>> frame = pl.DataFrame({"z": [[0.0], [1.0], [2.0], [3.0]], "animal": ["cat", "dog"] * 2})
        >>> Features.from_frame(frame, label="animal", test=0.5)
        Features(2 train, 2 test, 1 features, labels: animal (2))
        """
        selection = Selection(embedding=embedding, label=label, domains=domains, split=split)
        splits = read_splits({"": open_frame(frame)}, selection)
        drawn: list[str] = []
        said = drawn.append if test is None else lambda sentence: None
        made = cls.of_pieces(splits, Origin(backbone=made_by), test, seed, said)
        for sentence in drawn:
            message = f"{sentence}: test=0.2 or split=COLUMN says what you mean"
            warnings.warn(message, DrawnTestWarning, stacklevel=2)
        return made

    @classmethod
    def of_pieces(
        cls,
        splits: Mapping[str, Piece],
        origin: Origin,
        test: float | None = None,
        seed: int = 0,
        say: Say = lambda sentence: None,
    ) -> Self:
        """Return the features of what was read of tables; a test set is drawn if there is none."""
        read = {name: (piece.z, piece.columns) for name, piece in splits.items()}
        made, names = assemble(read, test, seed, say)
        return cls.of_splits(made, names, origin, names_of_columns(splits))

    @classmethod
    def of_splits(
        cls,
        splits: Mapping[str, FeatureSet],
        names: Mapping[str, tuple[str, ...]],
        origin: Origin | None = None,
        columns: tuple[str, ...] = (),
    ) -> Self:
        """Return the features of splits by name: train, test, and validation if there is one."""
        return cls(
            splits["train"],
            splits["test"],
            names,
            origin or Origin(),
            validation=splits.get("validation"),
            columns=columns,
        )

    @property
    def splits(self) -> dict[str, FeatureSet]:
        """The splits by name: train, test, and validation if there is one."""
        further = {} if self.validation is None else {"validation": self.validation}
        return {"train": self.train, "test": self.test, **further}

    @property
    def made_by(self) -> dict[str, str]:
        """What made them, as far as it is known: backbone, digest of its weights, normalisation."""
        return maker_of(asdict(self.origin))

    @property
    def label(self) -> str:
        """The name of the primary label column."""
        return self.train.label

    @property
    def n_classes(self) -> int:
        """The number of classes of the primary label."""
        return len(self.names[self.label])

    @property
    def in_features(self) -> int:
        """The number of features of a sample."""
        return self.train.in_features

    def with_label(self, label: str) -> Self:
        """Return the same features with another primary label column."""
        splits: dict[str, Any] = {
            name: replace(split, label=label, check=False) for name, split in self.splits.items()
        }
        return replace(self, **splits)

    def unit_rows(self) -> Self:
        """Return the same features with each row scaled to length 1; a row of zeros stays.

        Their ``origin`` says so, and classifiers that are fitted on them remember it.

        >>> data = Features.from_arrays([[3.0, 4.0], [0.0, 2.0]], [0, 1], test=([[0.0, 0.0]], [0]))
        >>> data.unit_rows().train.z.tolist(), data.unit_rows().test.z.tolist()
        ([[0.6000000238418579, 0.800000011920929], [0.0, 1.0]], [[0.0, 0.0]])
        """
        splits: dict[str, Any] = {
            name: replace(split, z=unit_rows(split.z).to(split.z.dtype), check=False)
            for name, split in self.splits.items()
        }
        how = ", ".join(filter(None, [self.origin.normalisation, "rows of length 1"]))
        return replace(
            self, **splits, origin=replace(self.origin, normalisation=how), fingerprint=""
        )

    def drop(self, suspects: Suspects) -> Self:
        """Return the same features without the training rows of an audit's table, or its file."""
        found = self._suspects(suspects)
        return replace(self, train=self.train.take(found.others(len(self.train))), fingerprint="")

    def relabel(self, suspects: Suspects) -> Self:
        """Return the same features, the training rows of an audit's table with its suggestions."""
        found = self._suspects(suspects)
        y, known = found.relabel(self.train.y, self.names[self.label])
        train = replace(self.train, labels={**self.train.labels, self.label: y}, check=False)
        names = {**self.names, self.label: known}
        return replace(self, train=train, names=names, fingerprint="")

    def _suspects(self, suspects: Suspects) -> Corrections:
        found = Corrections.read(suspects)
        found.check(self.train.y, self.names[self.label])
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that ``load_features`` reads, completely or not at all."""
        metadata = {
            "label": self.label,
            "names": {column: list(names) for column, names in self.names.items()},
            "name_code": NAME_CODE,
            "origin": asdict(self.origin),
            "fingerprint": self.fingerprint,
        }
        if self.columns:
            metadata["columns"] = list(self.columns)
        tensor_files.write_tensors(path, "features", self._tensors(), metadata)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that ``save`` wrote, mapped from disk and not copied."""
        tensors, metadata = tensor_files.read_tensors(path, "features")
        try:
            names, label, origin, fingerprint = (
                metadata[key] for key in ("names", "label", "origin", "fingerprint")
            )
            expect(fingerprint, str, "fingerprint", "text")
            splits: dict[str, Any] = {
                split: _split(tensors, split, names, label)
                for split in ("train", "test", "validation")
                if split != "validation" or "validation.z" in tensors
            }
            names = names_in_file(metadata)
            about = {"fingerprint": fingerprint, "columns": metadata.get("columns", ())}
            return cls(**splits, names=names, origin=Origin(**origin), **about)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(f"{path} lacks a part of a features file: {error}") from error

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {}
        for name, split in self.splits.items():
            tensors[f"{name}.z"] = split.z
            tensors |= {f"{name}.{column}": codes for column, codes in split.labels.items()}
        return tensors

    def _check_names(self, column: str) -> None:
        known = len(self.names.get(column, ()))
        for split in self.splits.values():
            if column in split.labels and (top := int(split.labels[column].max())) >= known:
                raise LabelError(f"class {top} of '{column}' must have a name, got {known} names")

    def __repr__(self) -> str:
        columns = (f"{column} ({len(names)})" for column, names in self.names.items())
        sizes = ", ".join(f"{len(split)} {name}" for name, split in self.splits.items())
        return f"Features({sizes}, {self.in_features} features, labels: {', '.join(columns)})"


@dataclass(frozen=True, eq=False, repr=False)
class TrainingFeatures:
    """Features without test rows: enough to ask which head suits them."""

    train: FeatureSet
    names: Mapping[str, tuple[str, ...]]  # per label column, the name of each class

    @property
    def test(self) -> None:
        """No test rows: None."""
        return

    def __repr__(self) -> str:
        columns = (f"{column} ({len(names)})" for column, names in self.names.items())
        return (
            f"TrainingFeatures({len(self.train)} train, {self.train.in_features} features, "
            f"labels: {', '.join(columns)})"
        )


def names_in_file(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of classes in a features file, as ``Features`` takes them.

    Version 0.2 spelt out odd characters, and gave the result to heads as the label: so for its
    files, and for those of other programs, what is written there is the label.
    """
    names = dict(metadata["names"])
    if metadata.get("name_code") != NAME_CODE:
        return names
    return {
        column: [_as_written(name) for name in given] if isinstance(given, list) else given
        for column, given in names.items()
    }


def _as_written(name: Any) -> Any:
    return ClassName(name) if isinstance(name, str) and printable(name) == name else name


def _class_names(names: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Check names of classes; what is a label still is coded."""
    expect(names, Mapping, "names", "a table of columns and the names of their classes")
    made: dict[str, tuple[str, ...]] = {}
    for column, given in names.items():
        expect(given, (tuple, list), f"the names of '{column}'", "a tuple of text")
        for name in given:
            expect(name, str, f"the name of a class of '{column}'", "text")
        made[column] = tuple(n if isinstance(n, ClassName) else class_name(n) for n in given)
    return made


def _split(
    tensors: Mapping[str, Tensor], split: str, names: Mapping[str, Any], label: str
) -> FeatureSet:
    """Take one split; its values were checked before they were written, and the checksum holds."""
    labels = {c: tensors[f"{split}.{c}"] for c in names if f"{split}.{c}" in tensors}
    return FeatureSet(tensors[f"{split}.z"], labels, label, check=False)
