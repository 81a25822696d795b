"""Features on their way to a file: parts in a folder beside it, so that work can be resumed.

They are made here, or on a Ray cluster, on GPUs where it has some.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from pathlib import Path

import torch
from torch import Tensor

from lastlayer.cluster import Cluster
from lastlayer.core import tensor_files
from lastlayer.core.progress import Tell
from lastlayer.errors import DataError, FileFormatError, OptionError, WriteError

DTYPES = {"float16": torch.float16, "float32": torch.float32}
SIZE = 1024  # images of a part: what an interruption costs at most
_KIND = "part of features"
# On a cluster.
AT_ONCE = 4  # parts that a task makes: a network is brought to a node once for all of them
TASKS = 4  # of each GPU, at most: each starts a process and brings the network to the GPU
DECODING = 8  # processes that keep a GPU busy, if nobody says how many


@dataclass(frozen=True)
class Piece:
    """The features of some images, and why others have none."""

    rows: Tensor  # (k,) int64
    z: Tensor  # (k, h)
    unreadable: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows) + len(self.unreadable)

    @classmethod
    def of(
        cls,
        rows: Tensor,
        z: Tensor,
        dtype: torch.dtype,
        name: Callable[[int], str],
        unreadable: tuple[str, ...] = (),
    ) -> "Piece":
        """Return features as they are kept; refuse what a file of features cannot hold.

        They are of these rows, one of which ``name`` names in a message.
        """
        kept = z.to(dtype)
        bad = ~kept.isfinite().all(1)
        if bad.any():
            raise DataError(
                f"features must be finite, but {name(int(rows[bad][0]))} gets NaN or infinity: "
                "keep them as float32 if they are too large for float16, or fix the weights"
            )
        return cls(rows, kept, unreadable)

    @classmethod
    def join(cls, pieces: Sequence["Piece"]) -> "Piece":
        """Put pieces together; one without features has no width."""
        z = [piece.z for piece in pieces if len(piece.rows)] or [pieces[0].z]
        unreadable = tuple(reason for piece in pieces for reason in piece.unreadable)
        return cls(torch.cat([piece.rows for piece in pieces]), torch.cat(z), unreadable)


@dataclass(frozen=True)
class Parts:
    """The parts of one features file, all made with the same setting.

    A part is written whole or not at all, and says how it was made: other settings are refused.
    """

    out: Path
    setting: Mapping[str, str]
    total: int  # images in all

    @property
    def folder(self) -> Path:
        """Where the parts are kept until the file is complete."""
        return self.out.with_name(f"{self.out.name}.parts")

    def missing(self) -> list[range]:
        """Return the rows of each part that is still to be made."""
        starts = range(0, self.total, SIZE)
        rows = [range(start, min(start + SIZE, self.total)) for start in starts]
        done = [part for part in rows if self._path(part.start).exists()]
        if done:
            self._read(done[0].start)  # other settings are better known before the work
        return [part for part in rows if part not in done]

    def write(self, start: int, pieces: Sequence[Piece]) -> None:
        """Keep what was computed for the rows from ``start``."""
        part = Piece.join(pieces)
        metadata = {"setting": dict(self.setting), "unreadable": part.unreadable}
        try:
            tensor_files.write_tensors(
                self._path(start), _KIND, {"rows": part.rows, "z": part.z}, metadata
            )
        except WriteError as error:
            raise WriteError(
                f"{error}: make room, then rerun the same command to resume"
            ) from error

    def join(self) -> Piece:
        """Return everything that was computed."""
        return Piece.join([self._read(start) for start in range(0, self.total, SIZE)])

    def remove(self) -> None:
        """Remove the parts once the features file is complete."""
        shutil.rmtree(self.folder)

    def _path(self, start: int) -> Path:
        return self.folder / f"{start:09}.safetensors"

    def _read(self, start: int) -> Piece:
        path = self._path(start)
        try:
            tensors, metadata = tensor_files.read_tensors(path, _KIND)
        except FileFormatError as error:
            raise FileFormatError(f"{error}; remove {path}: it will be made again") from error
        made, wanted = metadata["setting"], self.setting
        other = [name for name in wanted if made.get(name) != wanted[name]]
        if other:
            raise OptionError(
                f"{self.folder} holds an unfinished extraction with another setting of "
                f"{', '.join(other)}: finish that one, remove the folder, or choose another file "
                "to write"
            )
        return Piece(tensors["rows"], tensors["z"], tuple(metadata["unreadable"]))


Make = Callable[[Sequence[range]], Iterator[Piece]]  # computes the features of batches of rows
# Takes the cores of a task, and gives what makes features, and the size of a batch.
Prepare = Callable[[int], tuple[Make, int]]


def fill(
    parts: Parts,
    make: Make,
    batch_size: int,
    progress: Tell = lambda done, total: None,
    missing: Sequence[range] | None = None,
) -> None:
    """Make the parts that are missing; the next images are loaded while one is written."""
    missing = parts.missing() if missing is None else missing
    done = parts.total - sum(map(len, missing))
    batches = [
        part[start : start + batch_size]
        for part in missing
        for start in range(0, len(part), batch_size)
    ]
    pieces = make(batches)
    for part in missing:
        made: list[Piece] = []
        for piece in islice(pieces, ceil(len(part) / batch_size)):
            made.append(piece)
            done += len(piece)
            progress(done, parts.total)
        parts.write(part.start, made)


def fill_on_ray(
    address: str,
    parts: Parts,
    prepare: Prepare,
    progress: Tell,
    *,
    files: Sequence[Path],
    device: str,
    workers: int | None = None,
) -> None:
    """Make the parts that are missing on a cluster; a part that two nodes make is the same.

    All nodes must see the folder of the parts, and the files, some of those that are read;
    ``prepare`` travels there with all that it holds. Each task has so many workers for decoding;
    None: as many as there are cores for a GPU, up to 8, and none without GPUs.
    """
    missing = parts.missing()
    done = parts.total - sum(map(len, missing))
    cluster = Cluster(address)
    try:
        cluster.check_nodes(parts.folder, files)
        gpus = 0 if device == "cpu" else cluster.gpus
        if workers is None:
            workers = min(DECODING, cluster.cores_of_a_gpu) if gpus else 0
        cpus = max(1, workers)
        shared = cluster.share((parts, prepare, cpus))
        for made, _ in cluster.run(
            _make, tasks_of(missing, gpus), shared, cpus=cpus, gpus=min(gpus, 1)
        ):
            done += sum(map(len, made))
            progress(done, parts.total)
    finally:
        cluster.close()


def tasks_of(missing: Sequence[range], gpus: int) -> list[Sequence[range]]:
    """Put parts together to tasks: a few for each GPU, or of a few parts each.

    >>> [len(task) for task in tasks_of([range(10)] * 20, gpus=1)]
    [5, 5, 5, 5]
    >>> [len(task) for task in tasks_of([range(10)] * 20, gpus=0)]
    [4, 4, 4, 4, 4]
    """
    size = max(AT_ONCE, ceil(len(missing) / (TASKS * gpus))) if gpus else AT_ONCE
    return [missing[start : start + size] for start in range(0, len(missing), size)]


def _make(missing: Sequence[range], shared: tuple[Parts, Prepare, int]) -> None:
    """Make some parts, on a node."""
    parts, prepare, cores = shared
    fill(parts, *prepare(cores), missing=missing)
