"""Tables of named arrays: .npz, .npy beside others, .safetensors, and .pt of tensors."""

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.lib import format as npy
from safetensors import safe_open
from torch import Tensor

from lastlayer.core.files import check_growth, reading
from lastlayer.core.tensor_files import held_tensors, load_tensors, read_bytes, steps
from lastlayer.core.tensors import check_dense
from lastlayer.data.tables.table import Array, Columns, Table, at_once, by_column
from lastlayer.errors import FileFormatError

_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# The most dictionaries within dictionaries.
_DEEPEST = 3


def open_npz(path: Path) -> Table:
    """Open an archive of arrays."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        if len(entries) < len(archive.infolist()):
            raise FileFormatError(f"{path} has two arrays of the same name: rename one")
        columns = {name: _n_dimensions(archive, entry) for name, entry in entries.items()}

    def get(numbers: Sequence[str], labels: Sequence[str]) -> Columns:
        names = [*numbers, *labels]
        with reading(path, "a .npz file"), zipfile.ZipFile(path) as archive:
            size = sum(entries[name].file_size for name in set(names))
            check_growth(path, size, ", ".join(names[:5]))
            return {name: _from_archive(archive, entries[name], path) for name in names}

    return Table(str(path), columns, at_once(get))


def open_npy(path: Path, alone: bool = False) -> Table:
    """Open an array; those beside it, and .txt files of one label a line, are further columns.

    ``alone`` leaves out what lies beside it.
    """
    files = {path.stem: path}
    if not alone:
        for file in sorted(path.parent.iterdir()):
            if file.suffix in (".npy", ".txt") and file.is_file():
                files.setdefault(file.stem, file)
    columns = {}
    for name, file in files.items():
        columns[name] = 1
        if file.suffix == ".npy":
            with reading(file, "a .npy file"), file.open("rb") as content:
                columns[name] = len(_header(content)[0])
    return Table(str(path), columns, by_column(lambda name, rows: _file_pieces(files[name], rows)))


def open_safetensors(path: Path) -> Table:
    """Open tensors that another program wrote."""
    with safe_open(path, framework="pt") as file:
        if "lastlayer" in (file.metadata() or {}):
            raise FileFormatError(
                f"{path} is already a lastlayer file: 'lastlayer show {path}' says what is in it"
            )
        columns = {name: len(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    return Table(str(path), columns, by_column(lambda name, rows: _tensor_pieces(path, name, rows)))


def open_torch(path: Path) -> Table:
    """Open a dictionary of tensors, or of dictionaries of them; a file that can run no code."""
    must, mend = f"{path} must hold a dictionary of tensors", "torch.save({'z': z, 'y': y}, FILE)"
    alone = f"but is damaged, or holds other objects: save tensors and lists alone, {mend}"
    held = load_tensors(path, "the tensors", f"{must}, {alone}")
    flat = dict(_flat(held, ""))
    if not flat:
        raise FileFormatError(f"{must}, got {type(held).__name__}: {mend}")

    def get(numbers: Sequence[str], labels: Sequence[str]) -> Columns:
        with reading(path, "a file of named tensors"):
            return {name: _array_of(flat[name], name) for name in (*numbers, *labels)}

    return Table(str(path), {name: np.ndim(value) for name, value in flat.items()}, at_once(get))


def _tensor_pieces(path: Path, name: str, rows: int | None) -> Iterator[Array]:
    with reading(path, "a .safetensors file"), path.open("rb") as file:
        held = held_tensors(path).get(name)
        if held is None or not held.shape:
            raise FileFormatError(
                f"'{name}' of {path} must hold numbers, at least one for each row"
            )
        for start, n in steps(held.shape[0], rows):
            each = held.size // held.shape[0]
            content = torch.from_numpy(read_bytes(file, path, held.begin + start * each, n * each))
            yield _array_of(content.view(held.dtype).view(n, *held.shape[1:]), name)


def _file_pieces(path: Path, rows: int | None) -> Iterator[Array]:
    """Read a .npy file front to back; one that lies by columns, and a .txt, whole."""
    if path.suffix == ".npy":
        with reading(path, "a .npy file"), path.open("rb") as file:
            shape, by_columns, dtype = _HEADERS[npy.read_magic(file)](file)
            _check_header(shape, dtype, path.stat().st_size, path.name, path)
            if shape and not by_columns:
                each, begin = math.prod(shape[1:]) * dtype.itemsize, file.tell()
                for start, n in steps(shape[0], rows):
                    content = read_bytes(file, path, begin + start * each, n * each)
                    yield content.view(dtype).reshape(n, *shape[1:])
                return
    whole = _from_file(path)
    for start, n in steps(len(whole), rows):
        yield whole[start : start + n]


def _flat(held: Any, prefix: str, depth: int = 0) -> list[tuple[str, Any]]:
    """List tensors and lists by name: {"train": {"z": …}} has "train.z"."""
    if not isinstance(held, Mapping) or depth == _DEEPEST:
        return []
    found: list[tuple[str, Any]] = []
    for key, value in held.items():
        name = f"{prefix}{key}"
        if isinstance(value, Tensor | list | tuple):
            found.append((name, value))
        else:
            found += _flat(value, f"{name}.", depth + 1)
    return found


def _array_of(value: Any, name: str) -> Array:
    if not isinstance(value, Tensor):
        return np.array(value, dtype=object if any(isinstance(v, str) for v in value) else None)
    check_dense(value, f"'{name}'")
    value = value.detach().cpu()
    return np.atleast_1d((value.float() if value.dtype == torch.bfloat16 else value).numpy())


def _from_file(path: Path) -> Array:
    if path.suffix == ".txt":
        with reading(path, "a label in each line"):
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        whole = bool(lines) and all(line.isascii() and line.isdigit() for line in lines)
        plain = whole and all(str(int(line)) == line for line in lines)
        return np.array([int(line) for line in lines] if plain else lines, dtype=object)
    with reading(path, "a .npy file"), path.open("rb") as file:
        return np.atleast_1d(npy.read_array(file, allow_pickle=False))


def _header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, _, dtype = _HEADERS[npy.read_magic(file)](file)
    return shape, dtype


def _n_dimensions(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    with archive.open(entry) as file:
        return len(_header(file)[0])  # type: ignore[arg-type]


def _from_archive(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> Array:
    """Read one array; its header is believed only as far as there are bytes for it."""
    with archive.open(entry) as file:
        _check_header(*_header(file), entry.file_size, entry.filename, path)  # type: ignore[arg-type]
    with archive.open(entry) as file:
        return np.atleast_1d(npy.read_array(file, allow_pickle=False))


def _check_header(
    shape: tuple[int, ...], dtype: np.dtype[Any], size: int, name: str, path: Path
) -> None:
    if dtype.hasobject or dtype.kind == "V":
        array = name.removesuffix(".npy")
        kind, mend = "records", "save each field as an array of its own"
        if dtype.hasobject:
            kind = "Python objects"
            mend = f"save it as text, {array}.astype(str), or as numbers, {array}.astype(float)"
        raise FileFormatError(
            f"arrays of {path} must hold numbers or text, but '{array}' holds {kind}: {mend}"
        )
    if math.prod(shape) * max(dtype.itemsize, 1) > size:
        raise FileFormatError(
            f"{path} is damaged: {name} says that it holds an array of shape {shape} in {size} "
            "bytes"
        )
