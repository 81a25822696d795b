"""The files of sharded data: by a pattern, a folder in one of the usual layouts, or a list.

Layouts of a folder: what Hugging Face's datasets saved to disk, or its Hub keeps
(``train-00000-of-00010.parquet``); clip-retrieval's ``img_emb/*.npy`` beside
``metadata/*.parquet``; or simply files of one type.
"""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from lastlayer.core.checks import a_path, expect
from lastlayer.core.files import reading
from lastlayer.data.table_rows import no_such_rows
from lastlayer.data.tables.open_table import SUFFIXES, class_names, data_files, split_folders
from lastlayer.data.tables.which_columns import WORDS
from lastlayer.errors import DataError, MissingFileError, OptionError

Path_ = str | os.PathLike[str]
Sharded = Path_ | Sequence[Path_]
# How Hugging Face's Hub names files, and clip-retrieval its folders.
_OF_SPLIT = re.compile(rf"({'|'.join(WORDS)})-\d+-of-\d+$", re.IGNORECASE)
_EMBEDDINGS = ("img_emb", "text_emb")
SAMPLES, SAMPLE = 16, 1 << 12  # of how many bytes: a smaller file is read whole for its fingerprint


@dataclass(frozen=True)
class Shard:
    """A file of features, as it was when it was listed."""

    path: str  # absolute
    size: int
    mtime_ns: int
    split: str = ""  # the one that its name says, or its folder
    labels: str = ""  # the file that has its labels, where that is another: absolute
    labels_mtime_ns: int = 0
    names: dict[str, list[str]] | None = None  # of classes, by column

    @classmethod
    def of(cls, path: Path, labels: Path | None = None, **about: Any) -> Self:
        """Return a file, and the one that has its labels, as they are now."""
        with reading(path, "a shard"):
            found = path.stat()
        if labels is not None:
            with reading(labels, "the labels of a shard"):
                about |= {"labels": str(labels.absolute())}
                about |= {"labels_mtime_ns": labels.stat().st_mtime_ns}
        return cls(str(path.absolute()), found.st_size, found.st_mtime_ns, **about)

    def check_unchanged(self) -> None:
        """Refuse to go on with a file that is no longer what was listed."""
        now = Shard.of(Path(self.path), Path(self.labels) if self.labels else None)
        seen = (self.size, self.mtime_ns, self.labels_mtime_ns)
        if (now.size, now.mtime_ns, now.labels_mtime_ns) != seen:
            raise DataError(f"{self.path} changed while it was read: run this again")

    def print_of(self, rows: str) -> str:
        """Return the fingerprint by which a head knows a shard again that it has learned.

        It is made of the file's size and of samples of its bytes, not of its name or time: a shard
        that was moved, or copied to another machine, is known again. ``rows`` is the split that is
        meant, "" if it has one.
        """
        found = blake2b(digest_size=8)
        for path in filter(None, (self.path, self.labels)):
            with reading(Path(path), "a shard"), open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                found.update(size.to_bytes(8, "little"))
                # The first and the last are at the ends.
                for place in range(SAMPLES):
                    file.seek(max(size - SAMPLE, 0) * place // (SAMPLES - 1))
                    found.update(file.read(SAMPLE))
        return f"{found.hexdigest()} {rows}".rstrip()


def is_sharded(source: object) -> bool:
    """Return whether features are in several files: a folder, a pattern, or a list."""
    if isinstance(source, list | tuple):
        return all(isinstance(one, str | os.PathLike) for one in source)
    if not isinstance(source, str | os.PathLike):
        return False
    path = a_path(source)
    return path.is_dir() or (not path.exists() and _is_pattern(path))


def list_shards(source: Sharded, rows: str = "train", embedding: str | None = None) -> list[Shard]:
    """List the shards of a folder or a pattern by their names, those of a list in its order.

    Where a file has the very name of a pattern, it is the file. Where files or folders are named
    for a split, only those of the ``rows`` asked for are listed. ``embedding`` is one of
    clip-retrieval's folders, if there are several.
    """
    if isinstance(source, list | tuple):
        if not source:
            raise OptionError("give at least one shard, got an empty list")
        for one in source:
            expect(one, (str, os.PathLike), "a shard", "a path")
        found = [Shard.of(a_path(path), split=_split_of(a_path(path))) for path in source]
    else:
        path = a_path(source)
        found = _in_folder(path, embedding) if path.is_dir() else _matching(path)
    _refuse_repeated(found)
    chosen = [shard for shard in found if rows == "all" or shard.split in ("", rows)]
    if not chosen:
        raise no_such_rows(rows, sorted({shard.split for shard in found}))
    return chosen


def _is_pattern(path: Path) -> bool:
    return any(sign in str(path) for sign in "*?[")


def _matching(pattern: Path) -> list[Shard]:
    if pattern.exists() or not _is_pattern(pattern):
        return [Shard.of(pattern)]
    files = [Path(name) for name in glob.glob(str(pattern), recursive=True)]
    found = _of_one_type([file for file in sorted(files, key=_by_number) if file.is_file()])
    if not found:
        brackets = "; to mean a bracket, write [[]" if "[" in str(pattern) else ""
        raise MissingFileError(f"no file matches {pattern}{brackets}")
    return [Shard.of(file, split=_split_of(file)) for file in found]


def _in_folder(folder: Path, embedding: str | None) -> list[Shard]:
    splits = split_folders(folder)
    if splits:
        named = {name: WORDS.get(name.lower(), name) for name in splits}
        return [
            Shard.of(file, split=named[name], names=class_names(one))
            for name, one in splits.items()
            for file in data_files(one)
        ]
    if (folder / "state.json").is_file():
        return [Shard.of(file, names=class_names(folder)) for file in data_files(folder)]
    if (folder / "metadata").is_dir() and any((folder / name).is_dir() for name in _EMBEDDINGS):
        return _clip_retrieval(folder, embedding)
    files = _of_one_type(sorted(_files_below(folder), key=_by_number))
    if not files:
        raise MissingFileError(f"{folder} has no shards: no {', '.join(SUFFIXES[:-1])} files")
    return [Shard.of(file, split=_split_of(file)) for file in files]


def _clip_retrieval(folder: Path, embedding: str | None) -> list[Shard]:
    there = [name for name in _EMBEDDINGS if (folder / name).is_dir()]
    if embedding is not None and embedding not in there:
        raise OptionError(f"--embedding must be {' or '.join(there)}, got '{embedding}'")
    chosen = embedding or there[0]
    arrays = sorted((folder / chosen).glob("*.npy"), key=_by_number)
    tables = sorted((folder / "metadata").glob("*.parquet"), key=_by_number)
    numbers = [[_number(file) for file in files] for files in (arrays, tables)]
    if not arrays or numbers[0] != numbers[1]:
        lonely = sorted(set(numbers[0]) ^ set(numbers[1]))
        raise MissingFileError(
            f"{folder / 'metadata'} must have a .parquet file for each .npy file in "
            f"{folder / chosen}, got {len(tables)} for {len(arrays)}"
            + (f"; unpaired: number {lonely[0]}" if lonely else "")
        )
    return [Shard.of(array, table) for array, table in zip(arrays, tables, strict=True)]


def _files_below(folder: Path) -> Iterable[Path]:
    """Yield the tables and features files in a folder; names with . or _ belong to programs."""
    for file in folder.rglob("*"):
        inner = file.relative_to(folder).parts
        if any(part.startswith((".", "_")) or part.endswith(".parts") for part in inner):
            continue
        if file.suffix.lower() in SUFFIXES and file.is_file():
            yield file


def _of_one_type(files: Sequence[Path]) -> list[Path]:
    kinds = sorted({file.suffix.lower() for file in files})
    if len(kinds) > 1:
        raise OptionError(
            f"shards must be of one type, got {', '.join(kinds)}: choose with a pattern, such as "
            f"'{files[0].parent / '*'}{kinds[0]}'"
        )
    return list(files)


def _refuse_repeated(shards: Sequence[Shard]) -> None:
    seen: set[str] = set()
    for shard in shards:
        if shard.path in seen:
            raise OptionError(f"each shard must be given once, got {shard.path} twice")
        seen.add(shard.path)


def _split_of(file: Path) -> str:
    found = _OF_SPLIT.match(file.stem)
    return WORDS[found[1].lower()] if found else ""


def _number(file: Path) -> str:
    """Return the number at the end of a file's name, as clip-retrieval counts files."""
    numbers: list[str] = re.findall(r"\d+", file.stem)
    return numbers[-1] if numbers else file.stem


def _by_number(file: Path) -> list[str]:
    """Sort img_emb_2 before img_emb_10."""
    return [
        f"{int(part):020}" if part.isdecimal() and part.isascii() else part
        for part in re.split(r"(\d+)", str(file))
    ]
