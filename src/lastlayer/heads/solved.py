"""What a head has solved of its statistics, kept in its file: loaded, it need not solve again.

It belongs to the very statistics, settings and version that it was solved of, and is left out of
the file or thrown away where anything of that has changed since.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lastlayer.core.tensor_files import fingerprint
from lastlayer.core.version import __version__
from lastlayer.errors import FileFormatError

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

PREFIX = "solved."  # of the names of such tensors in a file; who does not know them ignores them


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
