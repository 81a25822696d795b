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

mean's sum of squared distances is the tensor ``statistics.spread``, NaN where a class was learned
by version 0.1, which did not keep it. Files of 0.1 have no format and no optional part. A part
that this version does not know is refused, since to leave it out would change the answers.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from lastlayer.arguments import a_path
from lastlayer.errors import FileFormatError
from lastlayer.files import read_tensors, write_tensors

FORMAT = 2  # of the document; 1: version 0.1
PARTS = (
    "class_names",
    "labels",
    "classifier",
    "feature_map",
    "feature_names",
    "origin",
    "calibration",
)


class HeadFile(NamedTuple):
    """What a file says of a head."""

    name: str
    settings: dict[str, Any]
    state: dict[str, Tensor]
    parts: dict[str, Any]  # those of ``PARTS`` that are there


def write_head(
    path: str | os.PathLike[str],
    name: str,
    settings: Mapping[str, Any],
    state: Mapping[str, Tensor],
    parts: Mapping[str, Any],
) -> None:
    """Write a head; parts without content are left out."""
    path = a_path(path)
    document: dict[str, Any] = {"head": name, "settings": dict(settings), "format": FORMAT}
    document |= {part: held for part, held in parts.items() if held is not None}
    write_tensors(path, "head", state, document)


def read_head(path: str | os.PathLike[str]) -> HeadFile:
    """Read a head of this version or an earlier one; refuse what only a later one understands."""
    path = a_path(path)
    state, document = read_tensors(path, "head")
    version = document.get("format", 1)
    if type(version) is not int or version > FORMAT:
        raise FileFormatError(
            f"{path} has head format {version}, but this version reads up to {FORMAT}: "
            "upgrade lastlayer"
        )
    parts = {key: document[key] for key in document.keys() - {"head", "settings", "format"}}
    for part in sorted(parts.keys() - set(PARTS)):
        raise FileFormatError(
            f"{path} has a part '{part}', which this version cannot use: upgrade lastlayer"
        )
    name, settings = document.get("head"), document.get("settings")
    for part, kind in (
        ("labels", str),
        ("classifier", dict),
        ("feature_map", dict),
        ("calibration", dict),
        ("origin", list),
        ("feature_names", list),
    ):
        if part in parts and not isinstance(parts[part], kind):
            raise FileFormatError(f"{path} stores its {part} in a form unknown to this version")
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise FileFormatError(f"expected {path} to name its head and settings, but it does not")
    return HeadFile(name, settings, state, parts)
