"""Our files: safetensors with JSON metadata and a checksum, written whole or not at all."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lastlayer.atomic import in_place_of
from lastlayer.errors import FileFormatError, MissingFileError, WriteError

FORMAT = 1
_KEY = "lastlayer"
_CHUNK = 1 << 22
_MAX_HEADER = 100_000_000


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Name the content of some tensors: a digest of their names, types, shapes and bytes."""
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
    """Write a file of one kind ("features", "head"); an interrupted write leaves nothing behind."""
    path = Path(path)
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
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"expected a lastlayer {kind} file at {path}, but there is none")
    header, start = _read_header(path)
    document = _document(header, path, kind)
    content = _combine(dict(_digests(path, header, start)))
    if document["checksum"] != _checksum(content, document["metadata"]):
        raise FileFormatError(f"{path} was altered after it was written: its checksum is wrong")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FileFormatError(f"{path} cannot be read as safetensors: {error}") from error
    return tensors, document["metadata"]


def _combine(digests: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()


def _checksum(content: str, metadata: Mapping[str, Any]) -> str:
    return hashlib.sha256((content + json.dumps(metadata, sort_keys=True)).encode()).hexdigest()


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Read the header that opens every safetensors file, and where its data begin."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= _MAX_HEADER or size > path.stat().st_size:
            raise FileFormatError(f"expected a safetensors file, but {path} is none, or truncated")
        try:
            header = json.loads(file.read(size))
        except ValueError as error:
            raise FileFormatError(f"expected a safetensors file, but {path} is none") from error
    if not isinstance(header, dict):
        raise FileFormatError(f"expected a safetensors file, but {path} is none")
    return header, 8 + size


def _document(header: dict[str, Any], path: Path, kind: str) -> dict[str, Any]:
    """Take what we wrote about a file from its header."""
    try:
        document = json.loads(header.pop("__metadata__")[_KEY])
        found, version = document["kind"], document["format"]
        document["checksum"], document["metadata"]
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"expected a lastlayer {kind} file, but {path} is a safetensors file of another program"
        ) from error
    if found != kind:
        raise FileFormatError(f"expected a lastlayer {kind} file, but {path} holds {found}")
    if not isinstance(version, int) or version > FORMAT:
        raise FileFormatError(
            f"{path} has format {version}, but this version reads up to {FORMAT}: update lastlayer"
        )
    return dict(document)


_DTYPES = {
    "F64": "torch.float64", "F32": "torch.float32", "F16": "torch.float16",
    "BF16": "torch.bfloat16", "I64": "torch.int64", "I32": "torch.int32", "I16": "torch.int16",
    "I8": "torch.int8", "U8": "torch.uint8", "BOOL": "torch.bool",
}  # fmt: skip


def _digests(path: Path, header: Mapping[str, Any], start: int) -> Iterator[tuple[str, Any]]:
    """Digest each tensor's bytes as they lie in the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        for name, entry in header.items():
            try:
                first, last = entry["data_offsets"]
                dtype, shape = _DTYPES[entry["dtype"]], list(entry["shape"])
                if not 0 <= first <= last:
                    raise ValueError(f"offsets {first} to {last}")
            except (KeyError, TypeError, ValueError) as error:
                raise FileFormatError(f"{path} has a damaged header at '{name}'") from error
            if start + last > size:
                raise FileFormatError(
                    f"{path} is truncated: expected {start + last} bytes, got {size}"
                )
            yield name, (dtype, shape, _digest(file, start + first, last - first))


def _digest(file: BinaryIO, start: int, length: int) -> str:
    digest = hashlib.sha256()
    file.seek(start)
    while length > 0 and (chunk := file.read(min(length, _CHUNK))):
        digest.update(chunk)
        length -= len(chunk)
    return digest.hexdigest()
