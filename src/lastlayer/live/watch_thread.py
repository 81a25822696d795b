"""The watch of a live head: one thread shows it rows as they were answered, and tells of alarms."""

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lastlayer.errors import LastLayerError
from lastlayer.estimator import HeadClassifier
from lastlayer.live.snapshot import Snapshot, drop_learning, frozen
from lastlayer.live.store.entry import Rows
from lastlayer.live.watch.on_alarm import tell
from lastlayer.live.watch.verdicts import Report
from lastlayer.live.watch.watch import Alarm, Watch

MOST = 20_000  # rows that wait to be shown; further ones are left out, and counted
PAUSE = 0.05  # seconds for rows to gather: many together cost little more than one
log = logging.getLogger("lastlayer.live")


@dataclass(frozen=True, eq=False)
class Shown:
    """Rows that were answered, or are about to be learned."""

    by: Snapshot  # that answers, and has not learned them
    z: Rows
    labels: tuple[str, ...] | None = None
    answered: str | None = None  # of one row whose label came later: what was answered then


class Watched:
    """Watches the rows that a live head answers and learns, in a thread of its own.

    It continues what the records of the classifier say, or begins with a new promise, as ``Watch``
    takes it. A command or an address is told of alarms, with the name of the head.
    """

    def __init__(
        self, clf: HeadClassifier, promise: Mapping[str, Any], on_alarm: str | None, name: str
    ) -> None:
        head = frozen(clf).head_
        drop_learning(head)  # it carries calibration, names and records, and answers nothing
        self.watch = Watch(head, **promise)
        self.left_out = 0
        self.untold = ""  # why nobody could be told of the last alarm
        self.changed = False  # since ``document`` was last asked for
        self._on_alarm, self._name = on_alarm, name
        self._rows: deque[Shown] = deque()
        self._waiting = 0
        self._news, self._stopping = threading.Condition(), False
        self._idle = True
        self._thread = threading.Thread(target=self._run, name="lastlayer-watch", daemon=True)
        self._thread.start()

    def show(self, shown: Shown) -> None:
        """Have rows watched, soon; never wait for it."""
        with self._news:
            if self._waiting + len(shown.z) > MOST:
                self.left_out += len(shown.z)
                return
            self._rows.append(shown)
            self._waiting += len(shown.z)
            self._news.notify_all()

    def forgot(self) -> None:
        """Note that the head has forgotten rows, which may have left a trace here."""
        head = self.watch.head
        with head.lock:
            head.records = {**head.records, "watch": {**head.records["watch"], "forgot": True}}
            self.changed = True

    def reset(self) -> None:
        """Begin anew, as ``Watch.reset`` does."""
        self.watch.reset()
        self.changed = True

    def report(self) -> Report:
        """Return what there is to say, of all rows that were shown so far."""
        self.catch_up()
        return self.watch.report()

    def catch_up(self) -> None:
        """Wait until everything that was shown is watched."""
        with self._news:
            self._news.wait_for(lambda: self._idle and not self._rows)

    def document(self) -> dict[str, Any]:
        """Return what the file of the head keeps."""
        self.changed = False
        found: dict[str, Any] = self.watch.head.records["watch"]
        return found

    def stop(self) -> None:
        """Watch what was shown so far, and end."""
        with self._news:
            self._stopping = True
            self._news.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._news:
                self._idle = True
                self._news.notify_all()
                self._news.wait_for(lambda: self._rows or self._stopping)
                if not self._rows:
                    return
                self._idle = False
            if not self._stopping:
                time.sleep(PAUSE)
            with self._news:
                taken, self._rows, self._waiting = list(self._rows), deque(), 0
            alarms: list[Alarm] = []
            for group in _together(taken):
                try:
                    alarms += self._see(group)
                except Exception:  # whatever it is: the rows after these are watched
                    log.exception("rows could not be watched")
                    self.left_out += sum(len(one.z) for one in group)
            if alarms:
                self._tell(alarms)

    def _see(self, group: Sequence[Shown]) -> tuple[Alarm, ...]:
        """Show rows of one kind, answered by one snapshot, to the watch."""
        by = group[0].by
        z, logits, novelty = by.judge(np.concatenate([one.z for one in group]))
        y = answered = None
        if group[0].labels is not None:
            y = by.classes_of([label for one in group for label in one.labels or ()])
        if group[0].answered is not None:
            answered = by.classes_of([one.answered or "" for one in group])
        head = self.watch.head
        with head.lock:
            if head.calibration is not None:  # the promise says for what head it was made
                stale = head.calibration.stale or by.has_changed
                head.calibration = replace(head.calibration, stale=stale)
            self.changed = True
            return self.watch.see_judged(z, logits, novelty, y, answered)

    def _tell(self, alarms: Sequence[Alarm]) -> None:
        for alarm in alarms:
            log.warning(
                "%s: alarm, %s, at row %d: see /watch", self._name, alarm.question, alarm.row
            )
        if self._on_alarm is None:
            return
        try:
            tell(self._on_alarm, alarms, self._name)
            self.untold = ""
        except LastLayerError as error:
            self.untold = str(error)
            log.error("%s", self.untold)


def _together(taken: Sequence[Shown]) -> list[list[Shown]]:
    """Return what can be judged at once, in order of its first rows."""
    groups: dict[tuple[int, bool, bool, str], list[Shown]] = {}
    for one in taken:
        kind = (id(one.by), one.labels is None, one.answered is None, str(one.z.dtype))
        groups.setdefault(kind, []).append(one)
    return list(groups.values())


def status_of(watched: Watched | None) -> dict[str, Any] | None:
    """Return how the watch of a head is, as JSON; None: it has none."""
    if watched is None:
        return None
    report = watched.watch.report()
    return {
        "promise": report.promise,
        "notices": list(report.notices),
        "left_out": watched.left_out,
        "untold": watched.untold,
        "questions": [
            {
                "question": one.question, "alarm": one.alarm, "answer": one.answer,
                "rows": one.rows, "alarms": one.alarms, "says": list(one.sentences),
            }
            for one in report.verdicts
        ],
    }  # fmt: skip
