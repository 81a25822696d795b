"""The work on shards, cut into tasks that any process on any machine can do.

A task and its answer are plain values. What is learned travels through the folder of parts: a part
is a head, written whole or not at all, under a name that was known before the shards were read. So
it does not matter who did a task, or how often.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import torch
from torch import Tensor

from lastlayer import errors
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.core.threads import one_core_each
from lastlayer.data.shard_list import Shard
from lastlayer.data.shard_rows import About, Counts, NamesOf, look_at, no_such_class, read_shard
from lastlayer.errors import FileFormatError, LastLayerError
from lastlayer.evaluate.training_rows import Divided
from lastlayer.heads import Head, head_of
from lastlayer.heads.head_file import HeadFile

Task = dict[str, Any]
Answer = dict[str, Any]
Run = Callable[[Sequence[Task]], Iterator[tuple[Task, Answer]]]  # does tasks, somewhere

_PART = "part of a fit"
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers of its settings
_DECIDED = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
_LARGE, _LARGEST = 4 << 20, 32 << 20  # bytes of a block; glibc's own setting ends at the second


def do(task: Task, stop: Event | None = None) -> Answer:
    """Do a task; an error of ours is an answer, too.

    Once ``stop`` is set, the answer is no longer needed, and no further piece is learned.
    """
    try:
        return _DO[task["kind"]](task, stop or Event())
    except LastLayerError as error:
        return _answer_of(error)


def run_in_threads(
    tasks: Sequence[Task], threads: int | None = None
) -> Iterator[tuple[Task, Answer]]:
    """Do tasks on this machine, and yield each with its answer as soon as it is done.

    So many threads, or as many as there are cores, have one core each; a single task is done with
    all of PyTorch's threads.
    """
    threads = min(len(tasks), threads or cores())
    if threads <= 1 or all(task["kind"] == "look" for task in tasks):
        yield from ((task, do(task)) for task in tasks)
        return
    stop = Event()
    with one_core_each(threads) as pool:
        try:
            waiting: dict[Future[Answer], Task] = {
                pool.submit(do, task, stop): task for task in tasks
            }
            while waiting:
                # Where polars has handled Ctrl-C, it does not break a wait: look again and again.
                done, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                for one in done:
                    yield waiting.pop(one), one.result()
        finally:
            stop.set()


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def error_of(answer: Mapping[str, Any]) -> LastLayerError:
    """Return the error that an answer holds."""
    kind = getattr(errors, str(answer["error"]), LastLayerError)
    made: LastLayerError = kind(str(answer["message"]))
    return made


def naming(error: LastLayerError, shard: Shard) -> LastLayerError:
    """Return an error that names its shard."""
    if shard.path in str(error) or (shard.labels and shard.labels in str(error)):
        return error
    return error_of({"error": type(error).__name__, "message": f"{error} ({shard.path})"})


def _answer_of(error: LastLayerError) -> Answer:
    return {"error": type(error).__name__, "message": str(error)}


def part_path(folder: Path, name: str) -> Path:
    """Return the file of a part."""
    return folder / f"{name}.safetensors"


def has_part(folder: Path, name: str) -> bool:
    """Return whether a part is there and sound; one that is damaged is removed."""
    path = part_path(folder, name)
    if not path.exists():
        return False
    try:
        _read_tensors(path, name)
    except LastLayerError:
        path.unlink(missing_ok=True)
        return False
    return True


def write_part(folder: Path, name: str, head: Head, broken: dict[str, str]) -> None:
    """Write what was learned; ``broken`` says which shards were left out, and why."""
    document: dict[str, Any] = {"name": name, "head": head.name, "settings": head.settings}
    document |= {"class_names": head.class_names, "broken": broken}
    write_tensors(part_path(folder, name), _PART, head.state_dict(), document)


def read_part(folder: Path, name: str) -> tuple[Head, dict[str, str]]:
    """Read what was learned, and which shards were left out."""
    path = part_path(folder, name)
    tensors, document = _read_tensors(path, name)
    # Mapped tensors are copied into the head: its file may be removed while it lives.
    own = {"class_names": document["class_names"]}
    file = HeadFile(document["head"], document["settings"], tensors, own)
    return head_of(file, path).double(), dict(document["broken"])


def _read_tensors(path: Path, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, document = read_tensors(path, _PART)
    if document.get("name") != name:
        raise FileFormatError(f"{path} must hold part {name}, got {document.get('name')}")
    return tensors, document


def _look(task: Task, stop: Event) -> Answer:
    looked: list[tuple[About, Counts] | Answer] = []
    for shard in task["shards"]:
        try:
            looked.append(look_at(shard, task["selection"]))
        except LastLayerError as error:
            looked.append(_answer_of(naming(error, shard)))
    return {"looked": looked}


def _learn(task: Task, stop: Event) -> Answer:
    """Learn some shards; without one that is found broken on the way, if that may be left out."""
    broken: dict[str, str] = {}
    while True:
        head, _ = read_part(Path(task["parts"]), task["begin"])
        head.disposable = True  # after an error it is read anew
        try:
            for shard, about in zip(task["shards"], task["abouts"], strict=True):
                if shard.path not in broken:
                    _learn_one(head, shard, about, task, stop)
            break
        except LastLayerError as error:
            if not task["skip"]:
                raise
            # What is learned of this shard is dropped with the head.
            broken[shard.path] = str(error)
    write_part(Path(task["parts"]), task["name"], head, broken)
    return {"broken": broken}


def _learn_one(head: Head, shard: Shard, about: About, task: Task, stop: Event) -> None:
    columns = {name: c for c, name in enumerate(head.class_names or ())}
    try:
        for z, names in read_shard(shard, task["selection"], about):
            if stop.is_set():
                raise CancelledError
            y = _columns(names, columns, shard)
            if len(y):
                head.observe(Divided(z, task["feature_scale"])[:], y)
            del z  # before the next piece is read
    except LastLayerError as error:
        raise naming(error, shard) from error


def _columns(names: NamesOf, columns: Mapping[str, int], shard: Shard) -> Tensor:
    codes, called = names
    for name in called:
        if name not in columns:
            raise no_such_class(shard, name)
    place = torch.tensor([columns[name] for name in called], dtype=torch.int64)
    return place[torch.from_numpy(codes)]


def _merge(task: Task, stop: Event) -> Answer:
    folder, (first, *others) = Path(task["parts"]), task["names"]
    head, broken = read_part(folder, first)
    for name in others:
        other, more = read_part(folder, name)
        head, broken = head.merge(other), broken | more
    write_part(folder, task["name"], head, broken)
    return {"broken": broken}


_DO: Mapping[str, Callable[[Task, Event], Answer]] = {
    "look": _look,
    "learn": _learn,
    "merge": _merge,
}


@contextmanager
def large_blocks_given_back() -> Iterator[None]:
    """Return the memory of large blocks to the system as soon as they are freed, under glibc.

    By default glibc keeps them, for each thread, and reading shards piece by piece leaves gaps that
    the next block does not fit into: 100 MiB after some gigabytes, and more with time. Limits that
    are set in the environment stay. The default ones, which follow the blocks in use, cannot be
    restored: afterwards they are as after the use of large blocks.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None or any(name in os.environ for name in _DECIDED):
        yield
        return
    mallopt(_MMAP_THRESHOLD, _LARGE)
    try:
        yield
    finally:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGEST)
