"""The working head: how it begins, and what one writer changes, entry by entry, and saves."""

import os
from collections.abc import Sequence
from copy import deepcopy
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lastlayer.core.checks import a_path
from lastlayer.core.files import reading
from lastlayer.data.label_values import LONGEST
from lastlayer.errors import (
    DataError,
    FileFormatError,
    LabelError,
    MissingFileError,
    OptionError,
    UnsupportedError,
)
from lastlayer.estimator import HeadClassifier
from lastlayer.estimator.class_labels import ClassLabels
from lastlayer.evaluate.training_rows import Divided
from lastlayer.heads import Head
from lastlayer.heads.too_large import refuse_too_large, squares_learned
from lastlayer.live.store.entry import FOLD, FORGET, LEARN, RELABEL, Entry, Rows
from lastlayer.live.store.head_store import Store

Given = str | os.PathLike[str] | HeadClassifier | None


class Working:
    """A classifier that changes by entries, and the number of the change it goes through.

    Small batches wait in a head before they are folded in, so its bits depend on where it folds.
    It folds on its own when a batch no longer fits, which a replay repeats; where anything else
    makes it fold, ``folded`` says so, and the writer notes it in the journal. From now on nobody
    else may change the classifier.
    """

    def __init__(self, clf: HeadClassifier, most_classes: int | None = None) -> None:
        self.clf = clf
        self.most_classes = most_classes
        self.change = int(clf.head_.records.get("change", 0))
        self.folded = False  # since the last entry, for a reason that a replay would not have
        self._squares = 0.0  # of the rows learned when they were last added up
        self._looked_up: ClassLabels | None = None  # those of which the dictionary is
        self._class: dict[str, int] = {}

    @property
    def head(self) -> Head:
        """The head itself."""
        return self.clf.head_

    @property
    def one_at_a_time(self) -> bool:
        """Whether entries must not be joined: what it learns depends on their order."""
        return not self.head.abilities.order_free

    def fold(self) -> None:
        """Fold in the rows that wait in the head."""
        with self.head.lock:
            self.head._settle()

    def apply(self, entry: Entry) -> None:
        """Make one change of the head, or raise and leave it as it was."""
        if entry.kind == FOLD:
            self.fold()
        elif entry.kind == LEARN:
            self.learn([entry])
        elif entry.kind == FORGET:
            self.head.forget(self._seen(entry.z), self._known(entry.labels))
            self._squares = 0.0
        elif entry.kind == RELABEL:
            self._relabel(entry)

    def learn(self, entries: Sequence[Entry]) -> None:
        """Learn the rows of one entry, or of several as one batch."""
        z = entries[0].z if len(entries) == 1 else np.concatenate([entry.z for entry in entries])
        names = [name for entry in entries for name in entry.labels]
        before = self.clf.labels_
        try:
            y = self._welcome(names)
            self.head.observe(self._seen(z), y)
        except BaseException:
            self._name(before)
            raise

    def refuse_too_large(self, z: Rows) -> None:
        """Refuse rows that would ruin what was learned before; a replay learns what it learned."""
        seen = self._seen(z)
        try:
            if self._squares:
                refuse_too_large(self.head, seen, self._squares)
                return
        except DataError:  # what was learned since may make the difference
            pass
        self._squares = squares_learned(self.head)
        refuse_too_large(self.head, seen, self._squares)

    def check_labels(self, names: Sequence[str], coming: Sequence[str] = ()) -> None:
        """Refuse labels that cannot be classes of this head, or would be too many.

        ``coming`` are others that will have been learned by then.
        """
        if self._classes_of(names) is not None:
            return
        for name in set(names):
            if not name or len(name) > LONGEST:
                raise LabelError(f"a label must have 1 to {LONGEST} characters, got {len(name)}")
        labels = self.clf.labels_
        labels.like(sorted({*names, *coming}))
        if self.most_classes is None:
            return
        known = set(labels.names) | set(coming)
        new = sorted(set(names) - known)
        if new and len(known) + len(new) > self.most_classes:
            raise LabelError(
                f"unknown label '{new[0][:60]}': this service takes at most {self.most_classes} "
                "labels (lastlayer serve --labels)"
            )

    def _relabel(self, entry: Entry) -> None:
        z, new = self._seen(entry.z), [*entry.to]
        if entry.labels == entry.to:
            raise DataError("relabel needs another label than the one that was learned")
        self.head.forget(z, self._known(entry.labels))
        before = self.clf.labels_
        try:
            self.head.observe(z, self._welcome(new))
        except BaseException:
            self._name(before)
            self.head.observe(z, self._known(entry.labels))
            raise

    def save(self, path: Path) -> None:
        """Write it to a file, with the change it goes through."""
        self.head.records["change"] = self.change
        self.clf.save(path, solve=False)

    def _seen(self, z: Rows) -> Tensor:
        return Divided(z, float(self.clf.feature_scale))[:]

    def _classes_of(self, names: Sequence[str]) -> Tensor | None:
        """Return the class (n,) of each name if all are known: of one row, a tenth of the work."""
        if self._looked_up is not self.clf.labels_:
            self._looked_up = self.clf.labels_
            self._class = {name: c for c, name in enumerate(self._looked_up.names)}
        found = [self._class.get(name, -1) for name in names]
        return None if -1 in found else torch.tensor(found, dtype=torch.int64)

    def _known(self, names: Sequence[str]) -> Tensor:
        if (found := self._classes_of(names)) is not None:
            return found
        distinct, codes = _numbered(names)
        labels = self.clf.labels_
        return labels.classes_of(labels.like(distinct), codes)

    def _welcome(self, names: Sequence[str]) -> Tensor:
        if (found := self._classes_of(names)) is not None:
            return found
        distinct, codes = _numbered(names)
        like = self.clf.labels_.like(distinct)
        self._name(self.clf.labels_.with_new(like))
        return self.clf.labels_.classes_of(like, codes)

    def _name(self, labels: object) -> None:
        if labels is not self.clf.labels_:
            self.clf.__dict__["labels_"] = labels
            self.head.class_names = self.clf.labels_.names


def _numbered(names: Sequence[str]) -> tuple[list[str], Tensor]:
    """Return the distinct names, sorted, and the number (n,) of each."""
    distinct = sorted(set(names))
    number = {name: place for place, name in enumerate(distinct)}
    return distinct, torch.tensor([number[name] for name in names], dtype=torch.int64)


def begin(store: Store, given: Given) -> HeadClassifier | None:
    """Begin a store with a head, unless it has one; return the head of one in memory.

    A store remembers which file it began with: another one is refused, rather than ignored.
    """
    path = None if given is None or isinstance(given, HeadClassifier) else a_path(given, "head")
    if store.folder is not None and store.head.exists():
        if path is not None and path.exists():
            _check_source(store, path)
        return None
    if given is None:
        raise MissingFileError(
            f"there is no head in {store.folder or 'memory'} yet: name the file of one to begin "
            "with"
        )
    if next(store.journal(after=-1), None) is not None:
        raise MissingFileError(f"{store.head} is missing, but {store.folder} has changes of it")
    clf = deepcopy(given) if isinstance(given, HeadClassifier) else HeadClassifier.load(given)
    if clf.answers is not None:
        raise UnsupportedError(
            "a live head answers with the labels that it learns: this one answers coarser ones"
        )
    clf.head_.records.pop("change", None)
    store.note(
        sources=[] if path is None else [digest_of(path)],
        classes=len(clf.labels_.names),
        calibrated=0 if clf.head_.calibration is not None else None,
    )
    if store.folder is None:
        return clf
    clf.save(store.head, solve=False)
    return None


def recover(store: Store, given: HeadClassifier | None, most_classes: int | None) -> Working:
    """Return the working head as a store has it: its file, and the changes since."""
    clf = HeadClassifier.load(store.head) if given is None else given
    working = Working(clf, most_classes)
    for together in store.journal(after=working.change):
        if together[0].change != working.change + 1:
            raise FileFormatError(
                f"change {working.change} is followed by {together[0].change} in the journal of "
                f"{store.folder}: what was between them is missing"
            )
        if together[0].entry.kind == LEARN:
            working.learn([kept.entry for kept in together])
        else:
            working.apply(together[0].entry)
        if together[0].entry.kind != FOLD:
            working.change = together[-1].change
    return working


def digest_of(path: Path) -> str:
    """Return a digest of a file's bytes."""
    with reading(path, "a head file"), path.open("rb") as file:
        digest = sha256()
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _check_source(store: Store, path: Path) -> None:
    if digest_of(path) not in (store.fact("sources") or ()):
        raise OptionError(
            f"{store.folder} goes on from another head than {path} is now: leave the file out to "
            "go on from the store, or choose another store for the new head"
        )
