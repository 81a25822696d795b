"""The one thread that changes a live head: groups of changes, on disk before they are answered."""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from lastlayer.core.files import say
from lastlayer.errors import DataError, LastLayerError, UnavailableError, WriteError
from lastlayer.estimator import HeadClassifier
from lastlayer.live.group import Asked, Making
from lastlayer.live.snapshot import frozen
from lastlayer.live.store.entry import FOLD, FORGET, RELABEL, Entry
from lastlayer.live.store.head_store import Store
from lastlayer.live.waitlist import Open, Waitlist, sketch
from lastlayer.live.watch_thread import Watched
from lastlayer.live.working import Working

MOST_ENTRIES, MOST_BYTES = 1000, 64 << 20  # that wait for the writer; beyond, it is busy
GROUP_ROWS = 10_000  # rows of a group, about
ROWS, BYTES, AGE = 10_000, 64 << 20, 300.0  # of changes since a checkpoint, until the next one
LAST = 10  # changes that are listed
RETRY = 10.0  # seconds after which a checkpoint that failed is tried again
SWEEP = 30.0  # seconds between looks for rows that have waited too long
log = logging.getLogger("lastlayer.live")


@dataclass(frozen=True, eq=False)
class Order:
    """Something for the writer to do between two groups."""

    do: Callable[[], Any]
    done: "Future[Any]" = field(default_factory=Future)


class Writer:
    """Changes a working head, and says when answers should be refreshed.

    ``recover`` gives the working head as the store has it, again when a commit failed; ``refresh``
    makes a snapshot of a copy of it that goes through a change, ``fresh`` seconds after that at the
    latest (0: when asked); ``through`` says through which change answers go.
    """

    def __init__(
        self,
        recover: Callable[[], Working],
        store: Store,
        waitlist: Waitlist,
        fresh: float,
        refresh: Callable[[HeadClassifier, int, HeadClassifier | None], None],
        through: Callable[[], int],
    ) -> None:
        self._recover, self._store, self.waitlist, self.fresh = recover, store, waitlist, fresh
        self._refresh, self._through = refresh, through
        self.working = recover()
        self.base: HeadClassifier | None = None  # what answers know beside the working head
        self.change = self.saved = self.working.change
        self.read_only = ""  # why nothing can be changed; "": it can
        self.trouble = ""  # why the last checkpoint failed
        self.queued = self.queued_bytes = self._since_rows = self._since_bytes = 0
        self._since = self._last_refresh = 0.0
        self._sweep = time.monotonic() + SWEEP
        self._retry = 0.0
        self._erase_due = store.forgets()
        self._queue: SimpleQueue[Asked | Order | None] = SimpleQueue()
        self._count = threading.Lock()
        self.last: deque[dict[str, Any]] = deque(maxlen=LAST)  # changes, the latest first
        self.score: dict[str, Any] | None = store.fact("score")
        self.show: Callable[[Entry, str | None], None] = lambda entry, answered: None
        self.watched: Watched | None = None
        self._refreshing: Future[None] | None = None
        self._copied = self.working.change  # the change that the last copy goes through
        self._solver = ThreadPoolExecutor(1, "lastlayer-refresh")
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="lastlayer-writer", daemon=True)

    def start(self) -> None:
        """Erase what a kill left to erase, and begin to work."""
        if self._erase_due or self.change > self._saved_change():
            self._checkpoint()
        self._thread.start()

    def _saved_change(self) -> int:
        return int(self.working.head.records.get("change", 0))

    def ask(self, entry: Entry) -> "Future[dict[str, Any]]":
        """Queue an entry; its answer comes when it is on the disk."""
        with self._count:
            if self.read_only or self._stopping:
                raise UnavailableError(self.read_only or "the service is stopping")
            if entry.size > MOST_BYTES:
                most = f"{MOST_BYTES >> 20} MiB"
                raise DataError(f"a change may have at most {most} of rows: send it in parts")
            if self.queued >= MOST_ENTRIES or self.queued_bytes + entry.size > MOST_BYTES:
                raise UnavailableError("too many changes are waiting: try again in a second")
            self.queued += 1
            self.queued_bytes += entry.size
            asked = Asked(entry)
            self._queue.put(asked)
        return asked.answer

    def order(self, do: Callable[[], Any]) -> "Future[Any]":
        """Have something done between two groups, in the writer's thread."""
        order = Order(do)
        with self._count:
            if self._stopping:
                raise UnavailableError("the service is stopping")
            self._queue.put(order)
        return order.done

    def wake(self) -> None:
        """Let the writer look whether something is due."""
        self._queue.put(None)

    def stop(self) -> None:
        """Finish what is queued, write a checkpoint, and end."""
        with self._count:
            self._stopping = True
        self.wake()
        self._thread.join()
        self._solver.shutdown()

    # The thread.

    def _run(self) -> None:
        while True:
            orders, asked = self._next()
            try:
                if asked:
                    self._do_group(asked)
                for order in orders:
                    self._do(order)
                self._look_around()
            except Exception as error:
                self._give_up(error)
                why = UnavailableError(self.read_only)
                _refuse([(one, why) for one in asked if not one.answer.done()])
            if self._stopping and self._queue.empty():
                break
        if self.watched is not None:
            self.watched.stop()
        watched = self.watched is not None and self.watched.changed
        if not self.read_only and (self.change > self.saved or watched):
            self._checkpoint()

    def _next(self) -> tuple[list[Order], list[Asked]]:
        """Wait for work, or until something is due; take what has come, up to a group."""
        orders: list[Order] = []
        asked: list[Asked] = []
        try:
            item = self._queue.get(timeout=self._patience())
            rows = 0
            while True:
                if isinstance(item, Asked):
                    asked.append(item)
                    rows += item.entry.rows
                elif item is not None:
                    orders.append(item)
                    break
                if rows >= GROUP_ROWS or len(asked) >= MOST_ENTRIES:
                    break
                item = self._queue.get_nowait()
        except Empty:
            pass
        with self._count:
            self.queued -= len(asked)
            self.queued_bytes -= sum(one.entry.size for one in asked)
        return orders, asked

    def _patience(self) -> float:
        """Return how long to sleep until something is due."""
        now = time.monotonic()
        due = [now + SWEEP if self.read_only else self._sweep]
        if self._stale and self._refreshing is None and self.fresh:
            due.append(self._last_refresh + self.fresh)
        if self.read_only:
            return max(min(due) - now, 0.0)
        if self._since_rows:
            due.append(max(self._since + AGE, self._retry))
        if self._erase_due:
            due.append(self._retry)
        return max(min(due) - now, 0.0)

    def _do(self, order: Order) -> None:
        if not order.done.set_running_or_notify_cancel():
            return
        try:
            order.done.set_result(order.do())
        except Exception as error:
            order.done.set_exception(error)

    def _do_group(self, asked: list[Asked]) -> None:
        if self.read_only:
            _refuse([(one, UnavailableError(self.read_only)) for one in asked])
            return
        making = Making(self.working, self._store, self._through())
        for one in asked:
            making.add(one)
        group = making.finish()
        late = self.waitlist.overdue(self._store.now(), len(group.waiting))
        gone = [*group.done, *late]
        group.done = gone
        try:
            if group.kept or group.waiting or group.done:
                self._store.commit(group)
        except Exception as error:
            self._give_up(error)
            _refuse([(one, UnavailableError(self.read_only)) for one in asked])
            return
        self._publish(making, gone)
        later = set(making.erases)
        _answer([(one, answer) for one, answer in making.good if one not in later])
        _refuse(making.bad)
        if later:
            self._erase_due = True
            why = self._checkpoint()
            held = [(one, answer) for one, answer in making.good if one in later]
            if why:
                message = f"forgotten, but not yet erased from the disk ({why}): ask again"
                _refuse([(one, UnavailableError(message)) for one, _ in held])
            else:
                _answer(held)

    def _publish(self, making: Making, gone: list[str]) -> None:
        new = [
            Open(e.request or "", self._store.now(), e.note, _read(e.answer), sketch(e.z))
            for e, _ in making.group.waiting
        ]
        self.waitlist.change(new, gone)
        if not making.group.kept:
            return
        if not self._since_rows:
            self._since = time.monotonic()
        self._since_rows += sum(max(kept.entry.rows, 1) for kept in making.group.kept)
        self._since_bytes += sum(kept.entry.size for kept in making.group.kept)
        self.score = making.group.facts.get("score", self.score)
        now = self._store.now()
        for change, _, entry in making.group.kept:
            if entry.kind in (FORGET, RELABEL) and self.watched is not None:
                self.watched.forgot()
            if entry.kind != FOLD:
                about = {"change": change, "kind": entry.kind, "rows": entry.rows, "at": now}
                self.last.appendleft(about)
        for entry, answered in making.shown:
            self.show(entry, answered)
        self.change = self.working.change

    def _look_around(self) -> None:
        """Do what is due: a refresh, a checkpoint, a sweep."""
        now = time.monotonic()
        if self._refreshing is not None and self._refreshing.done():
            self._refreshing = None
        if self._stale and self.fresh and now >= self._last_refresh + self.fresh:
            self.refresh()
        if self.read_only:
            return
        full = self._since_rows >= ROWS or self._since_bytes >= BYTES
        old = self._since_rows and now >= self._since + AGE
        if (full or old or self._erase_due) and now >= self._retry:
            self._checkpoint()
        if now >= self._sweep:
            self._sweep = now + SWEEP
            if self.waitlist.overdue(self._store.now()):
                self._do_group([])

    @property
    def _stale(self) -> bool:
        return self._copied < self.change

    def refresh(self, again: bool = False) -> "Future[None] | None":
        """Let answers know of all changes; in the writer's thread. One refresh at a time.

        ``again``: even if they know of them, since something else is new.
        """
        if self._refreshing is not None and not self._refreshing.done():
            return self._refreshing
        if not (self._stale or again):
            return None
        self._last_refresh = time.monotonic()
        clf, self._copied = frozen(self.working.clf), self.change
        self.working.folded = True  # a copy is made of a head without rows that wait
        self._refreshing = self._solver.submit(self._refresh, clf, self._copied, self.base)
        self._refreshing.add_done_callback(lambda _: self.wake())
        return self._refreshing

    def checkpoint(self) -> None:
        """Write the head to its file, in the writer's thread; raise if that fails."""
        if self.change > self.saved and (why := self._checkpoint()):
            raise WriteError(why)

    def _checkpoint(self) -> str:
        """Write the head to its file, then erase the journal; return why it failed, or "".

        The order is what keeps changes safe: the file is on the disk under its name, and the name
        in its folder, before the first change is erased from the journal.
        """
        self.working.folded = True  # to be written; a replay from the file before would not fold
        try:
            if self.watched is not None:
                self.working.head.records["watch"] = self.watched.document()
            if self._store.folder is not None:
                self.working.save(self._store.head)
            self._store.erase(self.working.change)
        except (LastLayerError, OSError) as error:
            self.trouble = str(error)
            if self.watched is not None:
                self.watched.changed = True
            self._retry = time.monotonic() + RETRY
            log.error("no checkpoint: %s", error)
            return self.trouble
        self.trouble, self._erase_due = "", False
        self.saved = self.working.change
        self._since_rows = self._since_bytes = 0
        self.working.folded = False
        return ""

    def _give_up(self, error: Exception) -> None:
        """Change nothing any more, and have the working head as the store has it."""
        with self._count:
            self.read_only = (
                f"the store is read-only since a change could not be written: {say(error)}"
            )
        log.error("%s", self.read_only)
        try:
            self.working = self._recover()
        except Exception as again:
            log.error("the store cannot be read: %s", again)
            self._copied = self.change  # nobody must see what was not written


def _answer(given: list[tuple[Asked, dict[str, Any]]]) -> None:
    for asked, answer in given:
        if asked.answer.set_running_or_notify_cancel():
            asked.answer.set_result(answer)


def _refuse(given: list[tuple[Asked, Exception]]) -> None:
    for asked, error in given:
        if asked.answer.set_running_or_notify_cancel():
            asked.answer.set_exception(error)


def _read(answer: str | None) -> dict[str, Any]:
    return dict(json.loads(answer or "{}"))
