"""Our files: safetensors with JSON metadata and a checksum, written completely or not at all."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lastlayer.arguments import a_path, short
from lastlayer.atomic import in_place_of
from lastlayer.errors import FileFormatError, WriteError
from lastlayer.reading import reading, say

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
            raise FileFormatError(
                f"{place} was altered after it was written: its checksum is wrong"
            )
        return tensors, document["metadata"]


def kind_of_file(path: Path) -> str | None:
    """Return which kind of our files it is; None: a safetensors file of another program."""
    with reading(path, "a safetensors file"), _opened(path) as file:
        try:
            kind = json.loads((file.metadata() or {})[_KEY])["kind"]
        except (KeyError, TypeError, ValueError, RecursionError):
            return None
        return str(kind)


@contextmanager
def _opened(path: Path) -> Iterator[safe_open]:
    """Open a safetensors file, mapped; the library checks that its header fits its size."""
    try:
        file = safe_open(path, framework="pt")
    except SafetensorError as error:
        raise FileFormatError(
            f"expected a safetensors file, but {path} is not one, or is truncated or damaged: "
            f"{say(error)}"
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
