"""A group of changes in the making: names are looked up, changes applied, refusals drop out."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lastlayer.errors import FileFormatError, NotWaitingError, TakenError
from lastlayer.live.store.entry import AWAIT, DROP, FOLD, FORGET, LABEL, LEARN, Entry, Rows
from lastlayer.live.store.head_store import Group, Kept, Store, Waiting, check_same
from lastlayer.live.working import Working

TYPES = (np.float16, np.float32, np.float64)  # of rows
RECENT = 1000  # answers with a label of which the share of right ones is shown


@dataclass(frozen=True, eq=False)
class Asked:
    """An entry, and where its answer goes."""

    entry: Entry
    answer: "Future[dict[str, Any]]" = field(default_factory=Future)


class Making:
    """Applies what was asked, in its order, to the working head, and collects what to write.

    The store is only read: names and waiting rows are looked up there. Answers reflect at present
    the change ``fresh_through``.
    """

    def __init__(self, working: Working, store: Store, fresh_through: int) -> None:
        self.group = Group()
        self.good: list[tuple[Asked, dict[str, Any]]] = []
        self.bad: list[tuple[Asked, Exception]] = []
        self.erases: list[Asked] = []  # those that are answered when their rows are erased
        self._working, self._store, self._through = working, store, fresh_through
        # Labelled rows of this group, and what was answered to one whose label came later.
        self.shown: list[tuple[Entry, str | None]] = []
        self._batch: list[Asked] = []  # learns that will be applied as one
        self._digests: dict[Asked, bytes] = {}
        self._named: dict[str, tuple[bytes, dict[str, Any]]] = {}  # requests of this group
        self._labelled: dict[Asked, tuple[Entry | None, Waiting]] = {}

    def add(self, asked: Asked) -> None:
        """Apply one entry, or let it join the batch that will be applied next."""
        try:
            self._add(asked)
        except FileFormatError:  # the store cannot be read: that ends the group
            raise
        except Exception as error:  # whatever it is, it is the answer; the head is as before
            self.bad.append((asked, error))

    def finish(self) -> Group:
        """Apply what is left, and return what is to be written."""
        self._flush()
        return self.group

    def _add(self, asked: Asked) -> None:
        entry = asked.entry
        name = entry.request
        if name is not None and entry.kind != DROP:
            self._digests[asked] = digest = entry.digest(self._store.secret)
            if self._batch and any(name == other.entry.request for other in self._batch):
                self._flush()
            if (answer := self._before(name, digest, entry.kind)) is not None:
                self._repeat(asked, answer)
                return
        if entry.kind == AWAIT:
            self._let_wait(asked)
        elif entry.kind == DROP:
            self._drop(asked)
        elif entry.kind in (LEARN, LABEL):
            self._let_join(asked)
        else:
            self._flush()
            self._working.check_labels(entry.to)
            if entry.kind == FORGET or self._working.folded:
                self._fold()
            self._working.apply(entry)
            self._accept([asked])
            if entry.kind == FORGET:
                self._drop_copies(entry)

    def _before(self, name: str, digest: bytes, kind: str = "") -> dict[str, Any] | None:
        """Return what this very request was answered before; None: its name is new."""
        try:
            if name in self._named:
                other, answer = self._named[name]
                check_same(name, other, digest)
                return answer
            return self._store.answered(name, digest)
        except TakenError:
            if kind != LABEL:
                raise
            raise TakenError(
                f"'{name[:200]}' was learned with another label, or names another request: "
                "POST /relabel corrects a label"
            ) from None

    def _repeat(self, asked: Asked, answer: dict[str, Any]) -> None:
        self.good.append((asked, answer))
        if asked.entry.kind == FORGET:
            self.erases.append(asked)  # perhaps it was not erased when it failed to be answered

    def _let_wait(self, asked: Asked) -> None:
        entry, digest = asked.entry, self._digests[asked]
        assert entry.request is not None
        for other, known in self.group.waiting:
            if other.request == entry.request:
                check_same(entry.request, known, digest)
                break
        else:
            found = self._store.waiting(entry.request)
            if found is not None and entry.request not in self.group.done:
                check_same(entry.request, found[1], digest)
            else:
                self.group.waiting.append((entry, digest))
        self.good.append((asked, {}))

    def _row(self, name: str) -> tuple[Entry | None, Waiting]:
        """Return the row that waits under an id, and its entry if that is of this group."""
        for entry, _ in self.group.waiting:
            if entry.request == name:
                answer = json.loads(entry.answer or "{}")
                return entry, Waiting(name, 0.0, entry.z, entry.note, answer)
        found = self._store.waiting(name)
        if found is None or name in self.group.done:
            raise NotWaitingError(f"no input waits for a label under the id '{name[:200]}'")
        return None, found[0]

    def _drop(self, asked: Asked) -> None:
        name = asked.entry.request or ""
        self._flush()
        try:
            mine, _ = self._row(name)
        except NotWaitingError:
            raise self._gone(name) from None
        self._settle(name, mine)
        self.good.append((asked, {"dropped": name}))
        self.erases.append(asked)

    def _gone(self, name: str) -> Exception:
        try:
            self._before(name, b"")
        except TakenError:
            return TakenError(f"'{name[:200]}' has its label: forget it with its rows and labels")
        return NotWaitingError(f"no input waits for a label under the id '{name[:200]}'")

    def _drop_copies(self, entry: Entry) -> None:
        """Let no row wait that is forgotten: its bytes would stay in the store."""
        digests = [Entry(AWAIT, row).digest(self._store.secret) for row in _as_sent(entry.z)]
        self.group.done += self._store.copies(digests)
        gone = set(digests)
        self.group.waiting = [(e, d) for e, d in self.group.waiting if d not in gone]

    def _settle(self, name: str, mine: Entry | None) -> None:
        if mine is None:
            self.group.done.append(name)
        else:
            self.group.waiting = [(e, d) for e, d in self.group.waiting if e is not mine]

    def _let_join(self, asked: Asked) -> None:
        entry = asked.entry
        coming = [name for other in self._batch for name in other.entry.labels]
        self._working.check_labels(entry.labels, coming)
        if entry.kind == LABEL:
            mine, row = self._row(entry.request or "")
            labelled = Asked(replace(entry, z=row.z), asked.answer)
            self._digests[labelled] = self._digests.pop(asked)
            self._labelled[labelled] = mine, row
            asked = labelled
        self._working.refuse_too_large(asked.entry.z)
        self._batch.append(asked)
        if self._working.one_at_a_time:
            self._flush()

    def _flush(self) -> None:
        """Apply the batch: as one, or one by one where that fails."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        if self._working.folded:
            self._fold()
        try:
            self._working.learn([asked.entry for asked in batch])
        except Exception as error:
            if len(batch) == 1:
                self.bad.append((batch[0], error))
                return
            for asked in batch:
                self._batch = [asked]
                self._flush()
            return
        self._accept(batch)

    def _fold(self) -> None:
        self._working.fold()
        self._working.folded = False
        coming = self._working.change + 1
        self.group.kept.append(Kept(coming, -coming, Entry(FOLD)))

    def _accept(self, together: Sequence[Asked]) -> None:
        step = self._working.change + 1
        for asked in together:
            entry = asked.entry
            self._working.change += 1
            change = self._working.change
            self.group.kept.append(Kept(change, step, entry))
            answer = {"change": change, "rows": entry.rows, "fresh_through": self._through}
            if entry.request is not None:
                self.group.answers.append((entry.request, self._digests[asked], answer))
                self._named[entry.request] = self._digests[asked], answer
            if asked in self._labelled:
                mine, row = self._labelled[asked]
                self._settle(row.id, mine)
                self._score(row, entry.labels[0])
                self.shown.append((entry, str(row.answer["best"][0][0])))
            elif entry.kind == LEARN:
                self.shown.append((entry, None))
            self.good.append((asked, answer))
            if entry.kind == FORGET:
                self.erases.append(asked)

    def _score(self, row: Waiting, label: str) -> None:
        """Compare the label that came with the answer that was given before it was learned."""
        facts = self.group.facts
        score = facts.get("score") or self._store.fact("score") or {}
        told = row.answer["label"] is not None  # it was not turned away
        right = told and str(row.answer["label"]) == label
        facts["score"] = {
            "answers": score.get("answers", 0) + 1,
            "right": score.get("right", 0) + right,
            "recent": (score.get("recent", "") + "01"[right])[-RECENT:],
            "told": score.get("told", 0) + told,
            "sure": score.get("sure", 0.0) + (row.answer["best"][0][1] if told else 0.0),
        }


def _as_sent(z: Rows) -> Iterator[Rows]:
    """Yield each row (1, h) in every type that it may have been sent in."""
    for kind in TYPES:
        with np.errstate(over="ignore"):
            other = z.astype(kind)
        same = (other.astype(z.dtype) == z).all(axis=1)
        yield from np.split(other[same], int(same.sum())) if same.any() else ()
