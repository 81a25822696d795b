"""The work on shards, cut into tasks that any process on any machine can do.

A task and its answer are plain data. What is learned travels through the folder of parts, under a
name that was known before, so that it does not matter who did a task, or how often.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any

import torch
from torch import Tensor

from lastlayer import errors
from lastlayer.errors import LastLayerError
from lastlayer.heads import Head
from lastlayer.shards.listing import Shard
from lastlayer.shards.parts import Parts
from lastlayer.shards.reading import About, NamesOf, Wish, look_at, no_such_class, read_shard

Task = dict[str, Any]
Answer = dict[str, Any]


def do(task: Task, enough: Event | None = None) -> Answer:
    """Do a task; what goes wrong by our own account is an answer, too.

    Args:
        task: what to do.
        enough: once it is set, nobody wants the answer: no further piece is learned.
    """
    try:
        return _DO[task["kind"]](task, enough or Event())
    except LastLayerError as error:
        return answer_of(error)


def answer_of(error: LastLayerError) -> Answer:
    """Write an error down."""
    return {"error": type(error).__name__, "message": str(error)}


def error_of(answer: Mapping[str, Any]) -> LastLayerError:
    """Return the error that was written down."""
    kind = getattr(errors, str(answer["error"]), LastLayerError)
    made: LastLayerError = kind(str(answer["message"]))
    return made


def _look(task: Task, enough: Event) -> Answer:
    wish, looked = Wish(**task["wish"]), []
    for shard in (Shard(**one) for one in task["shards"]):
        try:
            about, counts = look_at(shard, wish)
            looked.append({"about": asdict(about), "counts": counts})
        except LastLayerError as error:
            looked.append(answer_of(named(error, shard)))
    return {"looked": looked}


class _BrokenError(Exception):
    """A shard that cannot be learned."""

    def __init__(self, shard: Shard, error: LastLayerError) -> None:
        super().__init__(str(error))
        self.shard, self.error = shard, error


def _learn(task: Task, enough: Event) -> Answer:
    """Learn some shards; without one that is found broken on the way, if that may be left out."""
    parts = Parts(Path(task["parts"]))
    shards = [
        (Shard(**one), About(**about))
        for one, about in zip(task["shards"], task["abouts"], strict=True)
    ]
    broken: dict[str, str] = {}
    while True:
        head = parts.read_begin(task["begin"])
        head.disposable = True  # it is read anew after an error
        try:
            for shard, about in shards:
                if shard.path not in broken:
                    _learn_one(head, shard, about, task, enough)
            break
        except _BrokenError as found:
            if not task["skip"]:
                raise found.error from found
            broken[found.shard.path] = str(found.error)  # and what is learned of it is dropped
    parts.write(task["name"], head, broken)
    return {"broken": broken}


def _learn_one(head: Head, shard: Shard, about: About, task: Task, enough: Event) -> None:
    columns = {name: c for c, name in enumerate(head.class_names or ())}
    scale = task["feature_scale"]
    try:
        for z, names in read_shard(shard, Wish(**task["wish"]), about):
            if enough.is_set():
                raise CancelledError
            y = _columns(names, columns, shard)
            if len(y):
                head.observe(z if scale == 1 else z.double() / scale, y)
            del z  # before the next piece is read
    except LastLayerError as error:
        raise _BrokenError(shard, named(error, shard)) from error


def _columns(names: NamesOf, columns: Mapping[str, int], shard: Shard) -> Tensor:
    codes, called = names
    for name in called:
        if name not in columns:
            raise no_such_class(shard, name)
    place = torch.tensor([columns[name] for name in called], dtype=torch.int64)
    return place[torch.from_numpy(codes)]


def named(error: LastLayerError, shard: Shard) -> LastLayerError:
    """Return an error that names its shard."""
    if shard.path in str(error) or (shard.labels and shard.labels in str(error)):
        return error
    return error_of({"error": type(error).__name__, "message": f"{error} ({shard.path})"})


def _merge(task: Task, enough: Event) -> Answer:
    parts = Parts(Path(task["parts"]))
    (first, *others) = task["names"]
    head, broken = parts.read(first)
    for name in others:
        other, more = parts.read(name)
        head, broken = head.merge(other), broken | more
    parts.write(task["name"], head, broken)
    return {"broken": broken}


_DO: Mapping[str, Callable[[Task, Event], Answer]] = {
    "look": _look,
    "learn": _learn,
    "merge": _merge,
}
