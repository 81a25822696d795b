"""A head that lives: any number of threads ask it and bring it rows, and nothing is lost."""

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from lastlayer.core.checks import a_path, real, short, whole
from lastlayer.core.tensors import are_usable, bad_features
from lastlayer.errors import (
    DataError,
    LabelError,
    NotLearnedError,
    OptionError,
    ShapeError,
)
from lastlayer.estimator import HeadClassifier
from lastlayer.heads.calibration import a_share
from lastlayer.live.snapshot import Answer, Snapshot
from lastlayer.live.store.entry import AWAIT, DROP, FORGET, LABEL, LEARN, RELABEL, Entry, Rows
from lastlayer.live.store.head_store import Store
from lastlayer.live.waitlist import MOST, Open, Waitlist, sketch
from lastlayer.live.watch_thread import Shown, Watched
from lastlayer.live.working import Given, Working, begin, recover
from lastlayer.live.writer import Writer

LONGEST_NAME = 200  # characters of the name of a request or of an id
LONGEST_NOTE = 2000
log = logging.getLogger("lastlayer.live")


class LiveHead:
    """A head that learns, forgets and answers at once, and survives a kill at any moment.

    One thread applies changes in groups; answers come from a snapshot, which is refreshed at most
    ``fresh`` seconds after a change, and say through which change it has learned. A change that was
    acknowledged is on the disk. Every method may be called from any thread.

    Args:
        head: the file of a head, or a classifier, to begin a store with; None: the store has one.
        store: the folder of the store, which has one live head at a time; None: in memory only.
        fresh: seconds after which answers know of a change at the latest, but for the time that
            solving takes; 0: each answer knows of all changes.
        unknown: the share of known inputs that may be answered with None; needs a calibration.
        labels: "open", "known" (no new ones), or how many new ones may come.
        pending: seconds for which an input waits for its label.
        most_pending: how many inputs may wait.
        watch: what a watch of it promises, as ``Watch`` takes it: {"false_alarms": 0.05} or
            {"rows": 100_000}; None: none, unless it is watched already. Needs a calibration.
        on_alarm: a command of the shell, or an http(s) address, that is told of alarms.

    >>> clf = HeadClassifier("mean").fit([[0.0], [9.0]], ["dog", "cat"])
    >>> with LiveHead(clf, fresh=0) as live:
    ...     before = live.predict([[4.0]], id="a17").labels
    ...     receipt = live.label("a17", "owl")
    ...     before, receipt["change"], live.predict([[4.0]]).labels
    (['dog'], 1, ['owl'])
    """

    def __init__(
        self,
        head: Given = None,
        store: str | os.PathLike[str] | None = None,
        *,
        fresh: float = 1.0,
        unknown: float | None = None,
        labels: str | int = "open",
        pending: float = 86_400.0,
        most_pending: int = MOST,
        watch: Mapping[str, float] | None = None,
        on_alarm: str | None = None,
    ) -> None:
        self.fresh = real(fresh, "fresh")
        self.unknown = None if unknown is None else a_share(unknown, "unknown")
        if self.fresh < 0:
            raise OptionError(f"fresh must be at least 0 seconds, got {fresh}")
        folder = None if store is None else a_path(store, "store")
        self.store = Store(folder)
        self.watched: Watched | None = None
        try:
            given = self._begin(head)
            again = partial(self._recover, given, _most_classes(labels, self.store))
            waiting = (
                Open(w.id, w.since, w.note, w.answer, sketch(w.z)) for w in self.store.all_waiting()
            )
            waitlist = Waitlist(waiting, real(pending, "pending"), whole(most_pending, "", 1))
            self._snapshot: Snapshot | None = None
            self._news = threading.Condition()
            self.not_refreshed = ""  # why the last refresh failed
            self.writer = Writer(again, self.store, waitlist, self.fresh, self._refresh,
                                 lambda: self.through)  # fmt: skip
            clf = self.writer.working.clf
            self.in_features, self.name = clf.n_features_in_, clf.head_.name
            self._calibrated = self.store.fact("calibrated")
            self.watched = self.writer.watched = self._watched(clf, watch, on_alarm)
            self.writer.show = self._show_labelled
            self.writer.base = self._base()
            if bool(clf.head_.seen.any()) or self.writer.base is not None:
                solving = self.writer.refresh(again=True)
                assert solving is not None
                solving.result()
            self.writer.start()
            if self.store.behind > 1:
                log.warning("%s", self.clock)
        except BaseException:
            if self.watched is not None:
                self.watched.stop()
            self.store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish what was asked, write a checkpoint, and let go of the store."""
        self.writer.stop()
        self.store.close()

    # Answers.

    @property
    def change(self) -> int:
        """The number of the last change, which is on the disk."""
        return self.writer.change

    @property
    def through(self) -> int:
        """The change through which answers have learned; −1: there can be none yet."""
        return -1 if self._snapshot is None else self._snapshot.through

    @property
    def snapshot(self) -> Snapshot:
        """What answers come from at present."""
        if self._snapshot is None:
            raise NotLearnedError(self.not_refreshed or "this head has learned nothing yet")
        return self._snapshot

    def predict(self, rows: ArrayLike, id: str | None = None, note: str | None = None) -> Answer:
        """Answer rows (n, h); with an id the one row waits for its label, on the disk.

        A reviewer sees the note beside it, such as a path.
        """
        z = self.checked(rows)
        self.catch_up()
        snapshot = self.snapshot
        answer = snapshot.answer(z)
        self.show(snapshot, z)
        if id is not None:
            self.let_wait(z, answer, id, note).result()
        return answer

    def let_wait(
        self, z: Rows, answer: Answer, id: str, note: str | None
    ) -> "Future[dict[str, Any]]":
        """Keep a row and its answer until the label comes; done when it is on the disk."""
        if len(z) != 1:
            raise ShapeError(f"an id is that of one row, got {len(z)} rows")
        if note is not None and (not isinstance(note, str) or len(note) > LONGEST_NOTE):
            raise OptionError(f"a note must be a text of at most {LONGEST_NOTE} characters")
        said = {"label": answer.labels[0], "best": answer.best[0], "through": answer.through}
        entry = Entry(AWAIT, z, request=a_name(id, "id"), note=note, answer=json.dumps(said))
        return self.writer.ask(entry)

    def catch_up(self) -> None:
        """With ``fresh=0``, wait until answers know of all changes; else return."""
        if self.fresh == 0 and self.through < self.change:
            self.refresh()

    def refresh(self) -> int:
        """Wait until answers know of all changes so far; return the change they go through."""
        goal = self.change
        while self.through < goal:
            solving = self.writer.order(self.writer.refresh).result()
            if solving is not None:
                solving.result()
            if self.not_refreshed:
                raise DataError(self.not_refreshed)
            if solving is None and self.through < goal:
                return self.through  # it has learned nothing yet
        return self.through

    def review(self, count: int = 20) -> list[Open]:
        """Return inputs that wait for a label, those first whose labels would tell the most.

        These are unsure and not alike, as ``next_rows`` chooses.
        """
        return self.writer.waitlist.review(count)

    # Changes. Each returns when it is on the disk: {"change": …, "rows": …, "fresh_through": …}.

    def learn(
        self, rows: ArrayLike, labels: Sequence[Any], request: str | None = None
    ) -> dict[str, Any]:
        """Learn rows (n, h) with a label each.

        A request has a name of its own: asked again by the same name, nothing changes and the
        answer is the same. Without one, to try again after an error may learn the rows twice.
        """
        return self.ask(LEARN, rows, labels, request=request).result()

    def label(self, id: str, label: Any) -> dict[str, Any]:
        """Learn the row that waits under an id; again with the same label changes nothing."""
        return self.ask_label(id, label).result()

    def forget(
        self, rows: ArrayLike, labels: Sequence[Any], request: str | None = None
    ) -> dict[str, Any]:
        """Forget rows as if they had never been learned, and erase them from the disk."""
        return self.ask(FORGET, rows, labels, request=request).result()

    def drop(self, id: str) -> dict[str, Any]:
        """Drop a row that waits for its label, and erase it from the disk."""
        return self.ask_drop(id).result()

    def relabel(
        self, rows: ArrayLike, labels: Sequence[Any], to: Sequence[Any], request: str | None = None
    ) -> dict[str, Any]:
        """Correct the labels of rows that were learned, in one step."""
        return self.ask(RELABEL, rows, labels, to, request).result()

    def checkpoint(self) -> Path | None:
        """Write the head to its file, through the last change; return it, if there is a store."""
        self.writer.order(self.writer.checkpoint).result()
        return None if self.store.folder is None else self.store.head

    # What the service shares.

    def show(self, snapshot: Snapshot, z: Rows) -> None:
        """Have rows watched that a snapshot has answered."""
        if self.watched is not None:
            self.watched.show(Shown(snapshot, z))

    def _show_labelled(self, entry: Entry, answered: str | None) -> None:
        """Have rows watched that answers do not know of yet."""
        if self.watched is not None and self._snapshot is not None:
            self.watched.show(Shown(self._snapshot, entry.z, entry.labels, answered))

    def _watched(
        self, clf: HeadClassifier, promise: Mapping[str, float] | None, on_alarm: str | None
    ) -> Watched | None:
        """Return the watch that was asked for, or that the head has."""
        found = clf.head_.calibration
        comparable = found is not None and found.reference is not None
        if promise is None and not (comparable and "watch" in clf.head_.records):
            if on_alarm is not None:
                raise OptionError("on_alarm needs a watch: say which promise, such as false_alarms")
            return None
        folder = self.store.folder
        return Watched(clf, promise or {}, on_alarm, self.name if folder is None else folder.name)

    def ask(
        self,
        kind: str,
        rows: ArrayLike,
        labels: Sequence[Any],
        to: Sequence[Any] = (),
        request: str | None = None,
    ) -> "Future[dict[str, Any]]":
        """Ask for a change, done when it is on the disk; refuse what cannot be learned."""
        if kind != LEARN:
            self.check_forgets()
        z = self.checked(rows)
        names = tuple(map(a_label, labels))
        others = tuple(map(a_label, to))
        if not len(z):
            raise DataError("there must be rows, got none")
        if len(names) != len(z) or (kind == RELABEL and len(others) != len(z)):
            raise ShapeError(
                f"each row needs a label, got {len(z)} rows and {len(names)} labels"
                + (f" to become {len(others)}" if kind == RELABEL else "")
            )
        name = None if request is None else a_name(request, "request")
        return self.writer.ask(Entry(kind, z, names, others, name))

    def check_forgets(self) -> None:
        """Refuse to forget where that must be done elsewhere."""

    def ask_label(self, id: str, label: Any) -> "Future[dict[str, Any]]":
        """Ask to learn the label of a row that waits."""
        return self.writer.ask(Entry(LABEL, labels=(a_label(label),), request=a_name(id, "id")))

    def ask_drop(self, id: str) -> "Future[dict[str, Any]]":
        """Ask to drop a row that waits."""
        return self.writer.ask(Entry(DROP, request=a_name(id, "id")))

    def checked(self, rows: ArrayLike) -> Rows:
        """Return rows as an array (n, h) of their own; refuse what is none."""
        try:
            z = np.array(rows, order="C")
        except ValueError:
            raise ShapeError("rows must all have the same number of features") from None
        if z.dtype.kind in "iu":
            z = z.astype(np.float64)
        if z.dtype not in (np.float16, np.float32, np.float64):
            raise DataError(f"rows must be numbers, got {_kind(z)}")
        if z.ndim != 2 or z.shape[1] != self.in_features:
            raise ShapeError(f"rows must be (n, {self.in_features}), got {z.shape}")
        if len(z) and not are_usable(tensor := torch.from_numpy(z)):
            raise bad_features(tensor)
        return z

    def _begin(self, head: Given) -> HeadClassifier | None:
        return begin(self.store, head)

    def _recover(self, given: HeadClassifier | None, most_classes: int | None) -> Working:
        return recover(self.store, given, most_classes)

    def _base(self) -> HeadClassifier | None:
        """Return what answers know beside what the working head has learned."""
        return None

    def _refresh(self, clf: HeadClassifier, through: int, base: HeadClassifier | None) -> None:
        """Make a snapshot, in the thread that solves."""
        try:
            clf = clf if base is None else base.merge(clf)
            found = Snapshot(
                clf, through, self.unknown, self._calibrated, watched=self.watched is not None
            )
        except Exception as error:  # too few rows to solve, or too little memory: the old one stays
            self.not_refreshed = f"answers stay as they are through change {self.through}: {error}"
            log.error("answers stay as they are through change %d: see /status", self.through)
        else:
            self._snapshot, self.not_refreshed = found, ""

    @property
    def unsaved(self) -> str:
        """Why the last checkpoint was not written; "" if it was."""
        return self.read_only or self.writer.trouble

    @property
    def clock(self) -> str:
        """What is wrong with the clock; "" if nothing is."""
        behind = self.store.behind
        return "" if behind <= 1 else (
            f"the clock has gone back by {behind:,.0f} s: what waits for a label waits that much "
            "longer"
        )  # fmt: skip

    @property
    def read_only(self) -> str:
        """Why nothing can be changed; "" if it can."""
        return self.writer.read_only


def a_name(value: Any, what: str) -> str:
    """Return the name of a request or of an input; refuse what is none."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_NAME:
        raise OptionError(f"the {what} must be a text of 1 to {LONGEST_NAME} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise OptionError(f"the {what} has half a character in it") from None
    return value


def _kind(z: Rows) -> str:
    """Return what values are that are no numbers."""
    kinds = {
        "U": "text",
        "S": "text",
        "b": "true and false",
        "c": "complex numbers",
        "O": "values of other kinds",
    }
    return {**kinds, "M": "dates", "m": "times"}.get(z.dtype.kind, str(z.dtype))


def a_label(value: Any) -> str:
    """Return a label as text; refuse what is neither text nor a whole number."""
    if isinstance(value, np.integer):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise LabelError(f"a label must be a text or a whole number, got {short(value)}")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise LabelError("a label has half a character in it") from None
    return text


def _most_classes(labels: str | int, store: Store) -> int | None:
    if labels == "open":
        return None
    new = 0 if labels == "known" else whole(labels, "labels", least=0)
    return int(store.fact("classes")) + new
