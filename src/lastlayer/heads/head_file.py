"""The file of a head: what is in it, under which names, from which version on.

Its tensors are the head's ``state_dict``. Beside them is a JSON document with the name of the
head, the settings that make such a head, the format of the document, and what is optional:

- ``class_names``: what the classes 0, 1, … are called.
- ``labels``: of which type they were, where a classifier named them: "int64", "str", …
- ``classifier``: with what a ``HeadClassifier`` was made, and where its random numbers are, so
  that it continues as if it had never been saved.
- ``calibration``: the temperature that makes probabilities of logits, limits of novelty, and
  whether the head has changed since (``Calibration``).
- ``feature_map``: what is done to features before the head sees them: {"divide_by": 10.0}.
- ``feature_names``: what the columns of features were called, where a classifier knew: others are
  put in this order by name.
- ``origin``: what it was learned from, in sentences, where that is many files.

A part that this version does not know is refused, since to leave it out would change the answers.
"""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from lastlayer.core.checks import a_path, short
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.errors import FileFormatError

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

FORMAT = 2  # of the document
PARTS = {  # what else it may hold, and as what
    "class_names": list,
    "labels": str,
    "classifier": dict,
    "feature_map": dict,
    "feature_names": list,
    "origin": list,
    "calibration": dict,
}


class HeadFile(NamedTuple):
    """What a file says of a head."""

    name: str
    settings: dict[str, Any]
    state: dict[str, Tensor]
    parts: dict[str, Any]  # those of ``PARTS`` that are there


def write_head(path: str | os.PathLike[str], head: "Head", **parts: Any) -> None:
    """Write a head, with those of ``PARTS`` that have content."""
    path = a_path(path)
    with head.lock:
        parts["class_names"] = head.class_names
        parts["calibration"] = None if head.calibration is None else head.calibration.document()
        document: dict[str, Any] = {"head": head.name, "settings": head.settings, "format": FORMAT}
        document |= {part: parts[part] for part in PARTS if parts.get(part) is not None}
        write_tensors(path, "head", head.state_dict(), document)


def read_head(path: str | os.PathLike[str]) -> HeadFile:
    """Read the file of a head; refuse what only a later version understands."""
    path = a_path(path)
    state, document = read_tensors(path, "head")
    name, settings = document.pop("head", None), document.pop("settings", None)
    version = document.pop("format", None)
    if type(version) is not int or version != FORMAT:
        newer = isinstance(version, int) and version > FORMAT
        raise FileFormatError(
            f"{path} has head format {short(version)}, but this version reads format {FORMAT}"
            + (": upgrade lastlayer" if newer else "")
        )
    for part, held in sorted(document.items()):
        if part not in PARTS:
            raise FileFormatError(
                f"{path} has a part '{part}', which this version cannot use: upgrade lastlayer"
            )
        if not isinstance(held, PARTS[part]):
            raise FileFormatError(f"{path} stores its {part} in a form unknown to this version")
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise FileFormatError(f"{path} does not name its head and settings")
    return HeadFile(name, settings, state, document)
