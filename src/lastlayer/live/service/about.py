"""How a live head is, as plain values: for the page, for metrics, for whoever asks."""

import math
import shutil
import time
from typing import Any

from lastlayer.live.live_head import LiveHead
from lastlayer.live.watch_thread import status_of as status_of_watch


def status_of(head: LiveHead) -> dict[str, Any]:
    """Return how a head is."""
    writer, snapshot = head.writer, head._snapshot
    return {
        "head": head.name,
        "features": head.in_features,
        "classes": 0 if snapshot is None else snapshot.seen,
        "rows": None if snapshot is None else snapshot.rows,
        "change": head.change,
        "through": head.through,
        "fresh": head.fresh,
        "saved": writer.saved,
        "queued": writer.queued,
        "waiting": len(writer.waitlist),
        "read_only": head.read_only,
        "trouble": [text for text in (writer.trouble, head.not_refreshed, head.clock) if text],
        "calibrated_through": None if snapshot is None else snapshot.calibrated,
        "score": score_of(head),
        "watch": status_of_watch(head.watched),
        "disk": {"store": head.store.bytes, "free": _free(head)},
        "last": list(writer.last),
        "now": time.time(),
    }


def score_of(head: LiveHead) -> dict[str, Any] | None:
    """Return how many answers were right, of those whose label came later; with its interval.

    Beside it how sure those that were not turned away said they were, on average.
    """
    score = head.writer.score
    if not score or not score["answers"]:
        return None
    n, right = score["answers"], score["right"]
    recent = score.get("recent", "")
    share = recent.count("1") / len(recent) if recent else None
    low, high = interval(right, n)
    sure = score["sure"] / score["told"] if score["told"] else None
    return {
        "answers": n, "right": right, "low": low, "high": high,
        "told": score["told"], "sure": sure,
        "recent": share, "recent_answers": len(recent),
    }  # fmt: skip


def interval(right: int, n: int) -> tuple[float, float]:
    """Return Wilson's interval of a share, at 95 %.

    >>> tuple(round(end, 3) for end in interval(9, 10))
    (0.596, 0.982)
    """
    z = 1.959964
    middle = (right + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(right * (n - right) / n + z * z / 4)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _free(head: LiveHead) -> int | None:
    try:
        return None if head.store.folder is None else shutil.disk_usage(head.store.folder).free
    except OSError:
        return None
