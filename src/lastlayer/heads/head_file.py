"""The file of a head: what is in it, under which names, from which version on.

Its tensors are the head's ``state_dict``, of symmetric statistics the lower triangle, and what the
head has solved of them. Beside them is a JSON document: the name of the ``head``, the ``settings``
that make such a head, the ``format`` of the document, and parts. A part is under ``needed`` where
answers, or what the head may do next, would be wrong without it: a version that does not know it
refuses the file. All others are under ``may_be_ignored``. ``PARTS`` lists them; docs/decisions/18
says why each is where it is.

Format 2, of version 0.2, has the same parts side by side, all of them needed, and whole matrices.

A file may have been altered and given a new checksum. What a head would take in memory follows from
its settings; so these are compared with the tensors that are there, by a head without memory.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from threading import Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from lastlayer.core.checks import a_path, short
from lastlayer.core.packed import lower_parts, pack, unpack
from lastlayer.core.tensor_files import fingerprint, read_tensors, write_tensors
from lastlayer.core.tensors import MOST_CLASSES
from lastlayer.core.version import __version__
from lastlayer.errors import FileFormatError, StateError
from lastlayer.heads.records import RECORDS, check_records, is_record
from lastlayer.heads.shared_module import Resizable

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

FORMAT, OLDEST = 3, 2  # of the document
PREFIX = "solved."  # of the names of solved tensors; who does not know them ignores them
# Heads whose novelty 0.2 measured in another way, so that limits of then mean nothing now.
OTHER_NOVELTY = ("slda", "ridge", "sampled_linear", "random_ridge", "random_slda")
_MOST = 1e200  # sums of squares of the largest features are less
_COUNTS = ("count", "spread", "wear", "scale")


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _are_different_texts(value: Any) -> bool:
    return _are_texts(value) and len(set(value)) == len(value)


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


class Part(NamedTuple):
    """What a document may hold beside the head's name and settings."""

    fits: Callable[[Any], bool]  # whether a value has the form of such a part
    needed: bool


PARTS = {
    # What the classes 0, 1, … are called.
    "class_names": Part(_are_different_texts, needed=True),
    # Of which type they were, where a classifier named them: "int64", "str", …
    "labels": Part(_is(str), needed=True),
    # With what a HeadClassifier was made, and where its random numbers are, so that it continues as
    # if it had never been saved.
    "classifier": Part(_is(dict), needed=True),
    # The temperature that makes probabilities of logits, limits of novelty, and whether the head
    # has changed since (``Calibration``).
    "calibration": Part(_is(dict), needed=True),
    # What is done to features before the head sees them: {"divide_by": 10.0}.
    "feature_map": Part(_is(dict), needed=True),
    # What the columns of features were called: others are put in this order by name.
    "feature_names": Part(_are_texts, needed=True),
    # What made the features: a name, or what is known of a backbone.
    "made_by": Part(_is(str, dict), needed=False),
    # Which tensors are the lower triangles of symmetric matrices.
    "packed": Part(_are_different_texts, needed=True),
    # The digest of what the tensors of ``solved`` follow from.
    "solved": Part(_is(str), needed=False),
    # A head without its deltas and shards, or the change it has learned through, would learn them
    # again.
    **{
        record: Part(partial(is_record, record), needed=record in ("deltas", "shards", "change"))
        for record in RECORDS
    },
}


class HeadFile(NamedTuple):
    """What a file says of a head."""

    name: str
    settings: dict[str, Any]
    state: dict[str, Tensor]
    parts: dict[str, Any]  # those of ``PARTS`` that are there
    solved: Mapping[str, Tensor] = MappingProxyType({})  # what follows from the state, if it is so


def write_head(path: str | os.PathLike[str], head: "Head", **parts: Any) -> None:
    """Write a head, with those of ``PARTS`` that have content."""
    path = a_path(path)
    with head.lock:
        own: dict[str, Any] = {**check_records(head.records), "class_names": head.class_names}
        own["calibration"] = None if head.calibration is None else head.calibration.document()
        state = head.state_dict()
        own["packed"] = symmetric_names(head) or None
        state |= {name: pack(state[name].cpu()) for name in own["packed"] or ()}
        if solved := solved_tensors(head):
            own["solved"] = digest_of(state, head.name, head.settings)
        held = {name: part for name, part in (own | parts).items() if part is not None}
        document: dict[str, Any] = {"head": head.name, "settings": head.settings, "format": FORMAT}
        for kind, needed in (("needed", True), ("may_be_ignored", False)):
            document[kind] = {name: held[name] for name in held if PARTS[name].needed is needed}
        write_tensors(path, "head", state | solved, document)


def symmetric_names(head: "Head") -> list[str]:
    """Return which matrices of a head's state are known by their lower triangle."""
    return [
        f"{place}.{name}"
        for place, module in head.named_modules()
        if isinstance(module, Resizable)
        for name in module.symmetric
    ]


def read_head(path: str | os.PathLike[str]) -> HeadFile:
    """Read the file of a head; refuse what only a later version understands."""
    path = a_path(path)
    state, document = read_tensors(path, "head")
    name, settings = document.pop("head", None), document.pop("settings", None)
    version = document.pop("format", None)
    if type(version) is not int or not OLDEST <= version <= FORMAT:
        newer = isinstance(version, int) and version > FORMAT
        raise FileFormatError(
            f"{path} has head format {short(version)}, but this version reads formats {OLDEST} to "
            f"{FORMAT}" + (": upgrade lastlayer" if newer else "")
        )
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise FileFormatError(f"{path} does not name its head and settings")
    parts = _parts(document, version, str(path))
    if version == OLDEST:
        _count_weights(state)
        if name in OTHER_NOVELTY and "calibration" in parts:
            parts["calibration"] = {**parts["calibration"], "stale": True}
    solved = {tensor: state.pop(tensor) for tensor in [*state] if tensor.startswith(PREFIX)}
    if solved and parts.pop("solved", None) != digest_of(state, name, settings):
        solved = {}
    for matrix in parts.pop("packed", ()):
        try:
            state[matrix] = unpack(state[matrix])
        except (KeyError, IndexError, ValueError, RuntimeError) as error:
            raise FileFormatError(
                f"{path} does not hold the lower triangle {short(matrix)}: {short(error)}"
            ) from None
    return HeadFile(name, settings, state, parts, solved)


def _count_weights(state: dict[str, Tensor]) -> None:
    """Let statistics of 0.2, which counted samples, say that none had a weight."""
    for name in [name for name in state if name.endswith("statistics.count")]:
        state[name] = state[name].double()
        state[name.removesuffix("count") + "weighted"] = torch.tensor(False)


def _parts(document: dict[str, Any], version: int, path: str) -> dict[str, Any]:
    """Return the parts of a document that this version knows, if it need know no others."""
    needed, ignored = document, {}
    if version > OLDEST:
        needed, ignored = document.pop("needed", {}), document.pop("may_be_ignored", {})
        if not isinstance(needed, dict) or not isinstance(ignored, dict):
            raise FileFormatError(f"{path} stores its parts in a form unknown to this version")
    for part in sorted({*document, *needed}):
        if part not in PARTS or (version > OLDEST and part in document):
            raise FileFormatError(
                f"{path} has a part '{short(part)}', which this version cannot use: upgrade "
                "lastlayer"
            )
    parts = {part: held for part, held in ignored.items() if part in PARTS} | needed
    for part, held in parts.items():
        if not PARTS[part].fits(held):
            raise FileFormatError(f"{path} stores its {part} in a form unknown to this version")
    return parts


# What a head has solved belongs to the very statistics, settings and version that it was solved of,
# and is left out of the file, or thrown away, where anything of that has changed since.


def solved_tensors(head: "Head") -> dict[str, Tensor]:
    """Return what a head, and that behind its map, has solved and is up to date."""
    return {
        f"{PREFIX}{place}{name}": getattr(module, name)
        for place, module in _solvers(head)
        if not module._stale
        for name in module.solution
    }


def digest_of(state: Mapping[str, Tensor], name: str, settings: Mapping[str, Any]) -> str:
    """Return a digest of all that a solution follows from: a state as files keep it, and how."""
    how = json.dumps([fingerprint(state), name, settings, __version__], sort_keys=True)
    return sha256(how.encode()).hexdigest()


def put_back(head: "Head", solved: Mapping[str, Tensor]) -> None:
    """Let a head that was just loaded answer by what was solved before."""
    for place, module in _solvers(head):
        found = {name: solved.get(f"{PREFIX}{place}{name}") for name in module.solution}
        sizes = {"weight": (module.n_classes, module.in_features), "bias": (module.n_classes,)}
        sizes["centre"] = (module.in_features,)
        for name, tensor in found.items():
            if tensor is None:
                break  # nothing was solved when it was saved
            size = sizes.get(name, ())
            if tensor.shape != size or tensor.dtype != torch.float64 or tensor.isnan().any():
                raise FileFormatError(f"the solved {name} must be {size} numbers in float64")
            module._buffers[name] = tensor.clone()
        else:
            module._stale = False


def _solvers(head: "Head") -> Iterator[tuple[str, Any]]:
    for place, module in head.named_modules():
        if getattr(module, "solution", ()):
            yield f"{place}." if place else "", module


def check_state(make: Callable[[int], "Head"], state: Mapping[str, Tensor]) -> None:
    """Refuse tensors, given by name, that no head has which ``make`` makes for some classes."""
    blank = _without_memory(make, 0)
    if wrong := sorted(blank.keys() ^ state.keys()):
        which = "lacks" if wrong[0] in blank else "has no use for"
        raise StateError(f"such a head {which} a tensor '{wrong[0]}'")
    for name, expected in blank.items():
        _check_kind(name, state[name], expected)
    seen = state.get("seen")
    n = 0 if seen is None else seen.numel()
    if n > MOST_CLASSES:
        raise StateError(f"a head has at most {MOST_CLASSES} classes, got {n}")
    # By now a row of each tensor is known to be in the file, or there is none.
    rows = any(state[name].shape != expected.shape for name, expected in blank.items())
    with_class = _without_memory(make, 1) if n or rows else blank
    for name, expected in with_class.items():
        tensor = state[name]
        if expected.shape != blank[name].shape:
            if tensor.shape[0] != n:
                raise StateError(f"'{name}' must have a row for each of {n} classes")
            if seen is not None and name != "seen":
                # A class never seen may hold anything: a running minimum begins at infinity.
                tensor = tensor[seen.bool()]
        _check_values(name, tensor, n)


def _without_memory(make: Callable[[int], "Head"], n_classes: int) -> dict[str, Tensor]:
    """Return the state of a head whose tensors have shapes and types, but no numbers."""
    found: list[Any] = []

    # In a thread of its own: PyTorch's setting is one thread's, and an interrupt leaves it behind.
    def work() -> None:
        try:
            with torch.device("meta"):
                found.append(make(n_classes).state_dict())
        except Exception as error:
            found.append(error)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return dict(found[0])


def _check_kind(name: str, tensor: Tensor, expected: Tensor) -> None:
    """Refuse a tensor of another type, or of other sizes but for rows where there may be any."""
    same = tensor.dtype == expected.dtype
    # Rows are kept, and layers trained, in whatever floating-point type they came in.
    if expected.dtype == torch.float32 and tensor.dtype.is_floating_point:
        same = tensor.dtype.itemsize > 1
    fixed = 1 if expected.dim() and expected.shape[0] == 0 else 0
    if not same or tensor.dim() != expected.dim() or tensor.shape[fixed:] != expected.shape[fixed:]:
        raise StateError(
            f"'{name}' must be {expected.dtype} of shape {_shape(expected, fixed)}, got "
            f"{tensor.dtype} of shape {_shape(tensor, 0)}"
        )


def _shape(tensor: Tensor, free: int) -> str:
    sizes = ["any", *map(str, tensor.shape[1:])] if free else list(map(str, tensor.shape))
    return f"({', '.join(sizes)})"


def _check_values(name: str, tensor: Tensor, n_classes: int) -> None:
    """Refuse numbers that are not finite, counts below 0, and labels of no class."""
    if not tensor.numel() or tensor.dtype == torch.bool:
        return
    last = name.rpartition(".")[2]
    # Above the diagonal of a wide symmetric matrix may be anything, and it is not looked at.
    parts = lower_parts(tensor) if last == "scatter" else (tensor,)
    ends = torch.stack([torch.stack(part.aminmax()) for part in parts])
    least, most = float(ends.amin()), float(ends.amax())
    if not -_MOST <= least <= most <= _MOST:
        raise StateError(f"'{name}' must be finite")
    if least < 0 and (last in _COUNTS or not tensor.is_floating_point()):
        raise StateError(f"'{name}' must be at least 0, got {least:g}")
    if last == "y" and most >= n_classes:
        raise StateError(f"'{name}' must be below {n_classes}, got {most:g}")
