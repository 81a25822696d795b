"""How a live head begins: from a file, or where its store left off."""

import os
from copy import deepcopy
from hashlib import sha256
from pathlib import Path

from lastlayer.core.checks import a_path
from lastlayer.core.files import reading
from lastlayer.errors import (
    FileFormatError,
    MissingFileError,
    OptionError,
    UnsupportedError,
)
from lastlayer.estimator import HeadClassifier
from lastlayer.live.store.entry import FOLD, LEARN
from lastlayer.live.store.store import Store
from lastlayer.live.working import Working

Given = str | os.PathLike[str] | HeadClassifier | None


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
