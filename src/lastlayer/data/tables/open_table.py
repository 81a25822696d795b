"""Open a table by its file's name, or a folder of Hugging Face's datasets."""

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lastlayer.core.checks import a_path
from lastlayer.core.files import check_ordinary, reading
from lastlayer.core.names import look_up
from lastlayer.core.panics import without_panics
from lastlayer.data.tables.frames import (
    open_arrow,
    open_json_lines,
    open_parquet,
    open_shards,
    open_text,
)
from lastlayer.data.tables.named_arrays import open_npy, open_npz, open_safetensors, open_torch
from lastlayer.data.tables.table import Table
from lastlayer.errors import FileFormatError, MissingFileError, OptionError

_OPEN: Mapping[str, Callable[[Path], Table]] = {
    ".csv": partial(open_text, separator=","),
    ".tsv": partial(open_text, separator="\t"),
    ".parquet": open_parquet,
    ".arrow": open_arrow,
    ".feather": open_arrow,
    ".ipc": open_arrow,
    ".jsonl": open_json_lines,
    ".ndjson": open_json_lines,
    ".npz": open_npz,
    ".npy": open_npy,
    ".safetensors": open_safetensors,
    ".pt": open_torch,
    ".pth": open_torch,
}
SUFFIXES = tuple(_OPEN)


def open_table(path: str | os.PathLike[str]) -> dict[str, Table]:
    """Open a file by its suffix, or a folder that ``save_to_disk`` of datasets made.

    The one table that there is comes under "", those of a folder with splits by their names.
    """
    path = a_path(path)
    if path.is_dir():
        splits = split_folders(path) or {"": path}
        return {
            name: open_shards(folder, data_files(folder), class_names(folder))
            for name, folder in splits.items()
        }
    if not path.suffix and not path.exists():
        check_ordinary(path, "a table")
    opener = look_up(path.suffix.lower(), _OPEN, "type of table")
    with reading(path, f"a {path.suffix.lower()} file"), without_panics():
        return {"": opener(path)}


def one_table(path: str | os.PathLike[str]) -> Table:
    """Open a file, or a folder, that has no splits."""
    tables = open_table(path)
    if set(tables) != {""}:
        raise OptionError(f"{path} must be one table, but has splits: {', '.join(tables)}")
    return tables[""]


def split_folders(folder: Path) -> dict[str, Path]:
    """Return the folders of the splits of a ``DatasetDict``; of any other folder none."""
    listed = folder / "dataset_dict.json"
    if not listed.is_file():
        return {}
    names = _json(listed).get("splits")
    if not isinstance(names, list) or not names or not all(map(_is_plain, names)):
        raise FileFormatError(f"{listed} must list the splits")
    return {name: folder / name for name in names}


def is_dataset(folder: Path) -> bool:
    """Return whether a folder was saved to disk by Hugging Face's datasets."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def data_files(folder: Path) -> list[Path]:
    """Return the files of a data set that ``save_to_disk`` made, in their order."""
    state = folder / "state.json"
    if not state.is_file():
        raise MissingFileError(
            f"{folder} is not a table, nor a folder that save_to_disk of Hugging Face's datasets "
            "made: it has no state.json; only fit takes a folder of shards"
        )
    listed = _json(state).get("_data_files")
    names = [entry.get("filename") for entry in listed or () if isinstance(entry, dict)]
    if not names or not all(map(_is_plain, names)):
        raise FileFormatError(f"{state} must name the data files")
    return [folder / str(name) for name in names]


def class_names(folder: Path) -> dict[str, list[str]]:
    """Return the names of classes that datasets keeps beside their numbers, by column."""
    info = folder / "dataset_info.json"
    features = _json(info).get("features") if info.is_file() else None
    found = {}
    for column, kind in features.items() if isinstance(features, dict) else ():
        names = kind.get("names") if isinstance(kind, dict) else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            found[column] = names
    return found


def _json(path: Path) -> dict[str, Any]:
    with reading(path, "a file of JSON"):
        held = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(held, dict):
            raise FileFormatError(f"{path} must hold an object of JSON")
        return held


def _is_plain(name: object) -> bool:
    """Return whether a name that a file gives stays within its folder."""
    return isinstance(name, str) and Path(name).name == name and name not in ("", ".", "..")
