"""Our files: safetensors with JSON metadata and a checksum, written completely or not at all."""

import hashlib
import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lastlayer.core.atomic_write import in_place_of
from lastlayer.core.checks import a_path, short
from lastlayer.core.files import check_archive, reading, say
from lastlayer.errors import FileFormatError, WriteError

FORMAT = 1
_KEY = "lastlayer"
_CHUNK = 1 << 22


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of some tensors: of their names, types, shapes and bytes."""
    digests = {}
    for name, tensor in tensors.items():
        digest = hashlib.sha256()
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        raw = flat.numpy().data
        for start in range(0, raw.nbytes, _CHUNK):
            digest.update(raw[start : start + _CHUNK])
        digests[name] = (str(tensor.dtype), list(tensor.shape), digest.hexdigest())
    return _combine(digests)


def write_tensors(
    path: str | os.PathLike[str],
    kind: str,
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, Any],
) -> None:
    """Write a file of one kind ("features", "head"); an interrupted write leaves no trace."""
    path = a_path(path)
    document: dict[str, Any] = {"kind": kind, "format": FORMAT, "metadata": dict(metadata)}
    document["checksum"] = _checksum(fingerprint(tensors), document["metadata"])
    try:
        with in_place_of(path) as unfinished:
            save_file(_apart(tensors), unfinished, metadata={_KEY: json.dumps(document)})
    except SafetensorError as error:
        raise WriteError(f"cannot write {path}: {error}") from error


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy what overlaps another tensor in memory: safetensors would refuse to write it."""
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    end = 0
    for name, tensor in sorted(whole.items(), key=lambda item: item[1].data_ptr()):
        start = tensor.data_ptr()
        if start < end:
            whole[name] = tensor.clone()
        end = max(end, start + tensor.nbytes)
    return whole


def read_tensors(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of one kind, its checksum verified.

    The tensors are mapped from the file, not copied: a slice of one is read from disk when it is
    used, so a file may be larger than memory.
    """
    with reading(path, f"a lastlayer {kind} file") as place, _opened(place) as file:
        document = _document(file.metadata(), place, kind)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        # Over the bytes as they lie in the file: a mapped tensor has no others.
        if document["checksum"] != _checksum(fingerprint(tensors), document["metadata"]):
            raise _altered(place)
        return tensors, document["metadata"]


def kind_of_file(path: Path) -> str | None:
    """Return which kind of our files it is; None: a safetensors file of another program."""
    with reading(path, "a safetensors file"), _opened(path) as file:
        try:
            kind = json.loads((file.metadata() or {})[_KEY])["kind"]
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        return str(kind)


@dataclass(frozen=True)
class Held:
    """Where a tensor lies in a safetensors file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int  # the place of its first byte in the file

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * self.dtype.itemsize


_TYPES = {
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
    "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
    "U8": torch.uint8, "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64,
    "BOOL": torch.bool,
}  # fmt: skip


def held_tensors(path: Path) -> dict[str, Held]:
    """Say which tensors a safetensors file holds, of the types that features and labels have."""
    with _opened(path):  # the library checks that the header fits the file
        pass
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {
        name: Held(
            _TYPES[about["dtype"]], tuple(about["shape"]), 8 + length + about["data_offsets"][0]
        )
        for name, about in header.items()
        if name != "__metadata__" and about["dtype"] in _TYPES
    }


def steps(height: int, rows: int | None) -> Iterator[tuple[int, int]]:
    """Yield where each piece of a tensor begins, and how many rows it has; None: all at once."""
    step = rows or max(height, 1)
    for start in range(0, height, step):
        yield start, min(step, height - start)


def read_bytes(
    file: BinaryIO, path: Path, begin: int, size: int
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Read a range of a file; not mapped, since a mapped file that shrinks ends the process."""
    content = np.empty(size, dtype=np.uint8)
    file.seek(begin)
    if file.readinto(content.data) != size:  # type: ignore[attr-defined]
        raise FileFormatError(f"{path} was cut off while it was read")
    return content


def load_tensors(path: Path, what: str, refused: str) -> Any:
    """Load what ``torch.save`` wrote, tensors and plain values alone: nothing in it can run.

    Messages call its content ``what``, and ``refused`` is all that they say of a file that is
    damaged, or holds anything else.
    """
    if zipfile.is_zipfile(path):
        check_archive(path, what)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        # PyTorch's own words would tell how to load it all the same, and let it run code.
        raise FileFormatError(refused) from error


class TensorStream:
    """A file of ours that is read some rows at a time, and verified by the time that it is closed.

    Each byte is read once. What was read is only known to be right when ``verify`` has returned.
    """

    def __init__(self, path: Path, kind: str) -> None:
        with reading(path, f"a lastlayer {kind} file"), _opened(path) as file:
            self._document = _document(file.metadata(), path, kind)
            self.held = held_tensors(path)
        self.path, self.metadata = path, self._document["metadata"]
        self._digests = {name: hashlib.sha256() for name in self.held}
        self._read = dict.fromkeys(self.held, 0)  # bytes of each that went into its digest

    def rows(self, name: str, rows: int) -> Iterator[Tensor]:
        """Read a tensor from its first row to its last, a fixed number at a time."""
        held = self.held[name]
        each = held.size // max(held.shape[0], 1)
        with reading(self.path, "a lastlayer file"), self.path.open("rb") as file:
            for start, n in steps(held.shape[0], rows):
                content = read_bytes(file, self.path, held.begin + start * each, n * each)
                if self._read[name] == start * each:
                    self._digests[name].update(content.data)
                    self._read[name] += n * each
                yield torch.from_numpy(content).view(held.dtype).view(n, *held.shape[1:])

    def verify(self) -> None:
        """Read what was not read yet, and compare the checksum."""
        with reading(self.path, "a lastlayer file"), self.path.open("rb") as file:
            for name, held in self.held.items():
                for place in range(self._read[name], held.size, _CHUNK):
                    size = min(_CHUNK, held.size - place)
                    content = read_bytes(file, self.path, held.begin + place, size)
                    self._digests[name].update(content.data)
        content_digest = _combine(
            {
                name: (str(held.dtype), list(held.shape), self._digests[name].hexdigest())
                for name, held in self.held.items()
            }
        )
        if self._document["checksum"] != _checksum(content_digest, self.metadata):
            raise _altered(self.path)


def _altered(path: Path) -> FileFormatError:
    return FileFormatError(f"{path} was altered after it was written: its checksum is wrong")


@contextmanager
def _opened(path: Path) -> Iterator[safe_open]:
    """Open a safetensors file, mapped; the library checks that its header fits its size."""
    try:
        file = safe_open(path, framework="pt")
    except SafetensorError as error:
        damage = f", or is truncated or damaged: {say(error)}"
        raise FileFormatError(
            f"expected a safetensors file, but {path} is not one"
            + (damage if path.suffix.lower() == ".safetensors" else "")
        ) from error
    with file:
        yield file


def _combine(digests: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()


def _checksum(content: str, metadata: Mapping[str, Any]) -> str:
    return hashlib.sha256((content + json.dumps(metadata, sort_keys=True)).encode()).hexdigest()


def _document(said: Mapping[str, str] | None, path: Path, kind: str) -> dict[str, Any]:
    """Return what we wrote about a file in its metadata."""
    try:
        document = json.loads((said or {})[_KEY])
        found, version = document["kind"], document["format"]
        document["checksum"], document["metadata"].items()
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise FileFormatError(
            f"expected a lastlayer {kind} file, but {path} is a safetensors file of another program"
        ) from error
    if found != kind:
        raise FileFormatError(f"expected a lastlayer {kind} file, but {path} holds {short(found)}")
    if not isinstance(version, int) or version > FORMAT:
        raise FileFormatError(
            f"{path} has format {short(version)}, but this version reads up to {FORMAT}: "
            "upgrade lastlayer"
        )
    return dict(document)
