"""A replica: a live head whose learning is collected as deltas, to be merged with others'.

Its store has two files more: ``base.safetensors``, the head that all replicas began with or took
last, and a file for each delta. The working head holds only what was learned since the last delta;
answers come from all three together.
"""

import secrets
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

from lastlayer.core.atomic_write import in_place_of
from lastlayer.core.checks import a_path
from lastlayer.errors import (
    MergeError,
    NotWaitingError,
    OptionError,
    UnavailableError,
    UnsupportedError,
)
from lastlayer.estimator import HeadClassifier
from lastlayer.live.live_head import LiveHead
from lastlayer.live.store.head_store import HEAD
from lastlayer.live.working import Given, Working, begin, digest_of

BASE = "base.safetensors"


class Replica(LiveHead):
    """A live head that gives what it has learned as deltas; see ``LiveHead`` for its arguments.

    A head that merges is needed, behind a map only if that is fixed. A replica forgets nothing:
    rows that others hold too are forgotten in the merged head, which ``take`` brings back.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf = HeadClassifier("mean").fit([[0.0], [9.0]], ["dog", "cat"])
    ...     with Replica(clf, f"{folder}/one") as one:
    ...         receipt = one.learn([[4.0]], ["owl"])
    ...         name, path = one.delta()
    ...         HeadClassifier.load(path).head_.class_counts.tolist()
    [0, 0, 1]
    """

    @property
    def folder(self) -> Path:
        """Where its store is."""
        assert self.store.folder is not None
        return self.store.folder

    def check_forgets(self) -> None:
        """Refuse: what it has learned may be in heads elsewhere already."""
        raise UnsupportedError(
            "a replica does not forget: forget in the merged head, and send that to /reload"
        )

    def delta(self) -> tuple[str, Path] | None:
        """Freeze what was learned since the last delta, as a head in a file; None: nothing was.

        It is the same file until it is acknowledged.
        """
        found: tuple[str, Path] | None = self.writer.order(self.freeze).result()
        return found

    def reload(self, head: str | Path) -> dict[str, Any]:
        """Take a merged head, and add what was learned that it does not hold."""
        file = a_path(head, "head")
        said: dict[str, Any] = self.writer.order(lambda: self.take(file)).result()
        self.refresh()
        return said

    # In the writer's thread.

    def freeze(self) -> tuple[str, Path] | None:
        """Freeze a delta, unless one waits to be acknowledged."""
        frozen, open_ = self._frozen(), self._open()
        if open_:
            return self._named(open_[0])
        self._check_writes()
        begin_, end = (frozen[-1][1] if frozen else self._last()), self.writer.change
        if begin_ == end:
            return None
        self.writer.checkpoint()
        working = self.writer.working
        name, path = self._named([begin_, end])
        delta = deepcopy(working.clf)
        delta.head_.records = {"deltas": {self._identity(): [f"{begin_}-{end}"]}}
        delta.save(path, solve=False)
        # From here on the delta is one: a start would begin the working head anew.
        self.store.note(frozen=[*frozen, [begin_, end]])
        self._begin_anew(working)
        self.writer.base = self._base()
        return name, path

    def acknowledge(self, name: str) -> None:
        """Note that a delta has arrived."""
        for one in self._frozen():
            if self._named(one)[0] == name:
                self._check_writes()
                self.store.note(acknowledged=[*(self.store.fact("acknowledged") or []), one])
                return
        raise NotWaitingError(f"there is no delta {name[:100]!r} to acknowledge")

    def take(self, file: Path) -> dict[str, Any]:
        """Let a merged head be the base, and drop the deltas that it holds."""
        self._check_writes()
        merged = HeadClassifier.load(file)
        held = set(merged.head_.records.get("deltas", {}).get(self._identity(), ()))
        self._check(merged, held)
        with in_place_of(self.folder / BASE) as unfinished:
            shutil.copyfile(file, unfinished)
            digest = digest_of(unfinished)
        self.store.note(sources=[*self.store.fact("sources"), digest])
        self._drop(held)
        self.writer.base = self._base()
        self.writer.refresh(again=True)
        rows = merged.head_.class_counts
        return {"rows": None if rows is None else int(rows.sum()), "deltas": sorted(held)}

    def _check(self, merged: HeadClassifier, held: set[str]) -> None:
        frozen = {f"{a}-{b}" for a, b in self._frozen()}
        before = self._held()
        if unknown := held - frozen - before:
            raise MergeError(f"the head holds a delta {sorted(unknown)[0]} that was never given")
        if lost := before - held:
            raise MergeError(
                f"the head lacks delta {sorted(lost)[0]}, which the one before it held: merge all "
                "deltas, or begin with a head that did"
            )
        merged.merge(self.writer.working.clf)  # or say why not

    def _held(self) -> set[str]:
        """Return the names of the deltas that the base holds."""
        base = HeadClassifier.load(self.folder / BASE)
        return set(base.head_.records.get("deltas", {}).get(self._identity(), ()))

    def _drop(self, held: set[str]) -> None:
        frozen = self._frozen()
        gone = [one for one in frozen if f"{one[0]}-{one[1]}" in held]
        if gone:
            last = max(self._last(), *(end for _, end in gone))
            left = [one for one in frozen if one not in gone]
            acknowledged = [one for one in self.store.fact("acknowledged") or [] if one in left]
            self.store.note(frozen=left, last=last, acknowledged=acknowledged)
        for one in gone:
            self._named(one)[1].unlink(missing_ok=True)

    # How it begins.

    def _watched(self, clf: HeadClassifier, *asked: Any) -> None:
        """Refuse: a watch compares with the calibration of one head, which its deltas change."""
        if any(one is not None for one in asked):
            raise UnsupportedError("a replica is not watched: watch the merged head")

    def _begin(self, head: Given) -> HeadClassifier | None:
        if self.store.folder is None:
            raise OptionError("a replica needs a store")
        if self.store.fact("identity") is None:
            self.store.note(identity=secrets.token_hex(8), frozen=[], last=0)
        begun = (self.folder / BASE).exists()
        if not begun and (self.folder / HEAD).exists():
            raise OptionError(f"{self.folder} is the store of a live head that is no replica")
        if not begun:
            clf = head if isinstance(head, HeadClassifier) else None
            clf = HeadClassifier.load(head) if clf is None and head is not None else clf
            if clf is not None:
                _check_base(clf)
                clf.save(self.folder / BASE, solve=False)
        if begun and (self.folder / HEAD).exists():
            self._drop(self._held())  # where a kill came after the base was taken
            known = {self._named(one)[1] for one in self._frozen()}
            for path in set(self.folder.glob("delta-*.safetensors")) - known:
                path.unlink()  # where one came before the delta was noted
        given = begin(self.store, head)
        if self._begins_anew():
            working = Working(HeadClassifier.load(self.store.head))
            self._begin_anew(working)
        return given

    def _begins_anew(self) -> bool:
        """Return whether the head's file holds what is in the base, or in a delta, already."""
        change = HeadClassifier.load(self.store.head).head_.records.get("change")
        frozen = self._frozen()
        return change is None or change == (frozen[-1][1] if frozen else self._last())

    def _begin_anew(self, working: Working) -> None:
        """Let the working head have learned nothing, and write it."""
        change = working.change
        names = working.head.class_names
        fresh = working.head.fresh(working.head.n_classes)
        fresh.class_names = names
        working.clf.__dict__["head_"] = fresh
        working.change = change
        working.folded = False
        working.save(self.store.head)

    def _base(self) -> HeadClassifier:
        """Return the base with all frozen deltas."""
        base = HeadClassifier.load(self.folder / BASE)
        for one in self._frozen():
            base = base.merge(HeadClassifier.load(self._named(one)[1]))
        return base

    def _frozen(self) -> list[list[int]]:
        return [list(map(int, one)) for one in self.store.fact("frozen") or []]

    def _last(self) -> int:
        return int(self.store.fact("last") or 0)

    def _open(self) -> list[list[int]]:
        acknowledged = self.store.fact("acknowledged") or []
        return [one for one in self._frozen() if one not in acknowledged]

    def _identity(self) -> str:
        return str(self.store.fact("identity"))

    def _named(self, one: list[int]) -> tuple[str, Path]:
        begin_, end = one
        return (
            f"{self._identity()}:{begin_}-{end}",
            self.folder / f"delta-{begin_}-{end}.safetensors",
        )

    def _check_writes(self) -> None:
        if self.writer.read_only:
            raise UnavailableError(self.writer.read_only)


def _check_base(clf: HeadClassifier) -> None:
    if not clf.head_.abilities.merges or clf.head_.rows_to_begin:
        raise UnsupportedError(
            f"a replica needs a head that merges and whose map is fixed, which this "
            f"'{clf.head_.name}' head is not: learn its first rows before, or choose another head"
        )
