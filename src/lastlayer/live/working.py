"""The working head: what one writer changes, entry by entry, and saves; nobody asks it anything."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lastlayer.data.label_columns import LONGEST
from lastlayer.errors import DataError, LabelError
from lastlayer.estimator import HeadClassifier
from lastlayer.estimator.class_labels import ClassLabels
from lastlayer.evaluate.training_rows import Divided
from lastlayer.heads import Head
from lastlayer.heads.too_large import refuse_too_large, squares_learned
from lastlayer.live.store.entry import FOLD, FORGET, LEARN, RELABEL, Entry, Rows


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
