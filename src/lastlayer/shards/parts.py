"""The folder of parts: what was learned of some shards, under a name known before they were read.

A part is a head, written whole or not at all, with its name and a checksum in it. Whoever is to
write one writes the same: so one that is written twice, or late, changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lastlayer.errors import FileFormatError, LastLayerError
from lastlayer.files import read_tensors, write_tensors
from lastlayer.heads import Head, head_of
from lastlayer.heads.head_file import HeadFile

_PART, _BEGIN = "part of a fit", "beginning of a fit"


@dataclass(frozen=True)
class Parts:
    """The parts in a folder."""

    folder: Path

    def path(self, name: str) -> Path:
        """Return the file of a part."""
        return self.folder / f"{name}.safetensors"

    def has(self, name: str) -> bool:
        """Tell whether a part is there and sound; one that is damaged is made again."""
        path = self.path(name)
        if not path.exists():
            return False
        try:
            _content(path, name, _PART)
        except LastLayerError:
            path.unlink(missing_ok=True)
            return False
        return True

    def write(self, name: str, head: Head, broken: dict[str, str]) -> None:
        """Keep what was learned; ``broken`` says which shards were left out, and why."""
        _write(self.path(name), name, _PART, head, broken)

    def read(self, name: str) -> tuple[Head, dict[str, str]]:
        """Read what was learned, and which shards were left out."""
        return _read(self.path(name), name, _PART)

    def write_begin(self, name: str, head: Head) -> None:
        """Keep the head that all parts begin with."""
        _write(self.path(name), name, _BEGIN, head, {})

    def read_begin(self, name: str) -> Head:
        """Read the head that all parts begin with."""
        return _read(self.path(name), name, _BEGIN)[0]

    def remove(self, names: Iterable[str]) -> None:
        """Take parts away that are no longer needed."""
        for name in names:
            self.path(name).unlink(missing_ok=True)


def _write(path: Path, name: str, kind: str, head: Head, broken: dict[str, str]) -> None:
    document: dict[str, Any] = {"name": name, "head": head.name, "settings": head.settings}
    document |= {"class_names": head.class_names, "broken": broken}
    write_tensors(path, kind, head.state_dict(), document)


def _content(path: Path, name: str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors, document = read_tensors(path, kind)
    if document.get("name") != name:
        raise FileFormatError(f"expected part {name} in {path}, got {document.get('name')}")
    return tensors, document


def _read(path: Path, name: str, kind: str) -> tuple[Head, dict[str, str]]:
    tensors, document = _content(path, name, kind)
    # Mapped tensors are copied into the head: its file may be taken away while it lives.
    own = {"class_names": document["class_names"]}
    file = HeadFile(document["head"], document["settings"], tensors, own)
    return head_of(file, path).double(), dict(document["broken"])
