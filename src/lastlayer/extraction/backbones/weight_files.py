"""Weights from a file into a network: safetensors, or a state dict that cannot run code."""

import os
from collections.abc import Mapping

from safetensors.torch import load_file
from torch import Tensor, nn

from lastlayer.core.files import reading
from lastlayer.core.names import listed
from lastlayer.core.tensor_files import load_tensors
from lastlayer.core.tensors import check_dense
from lastlayer.errors import FileFormatError, MissingFileError

_HINT = "download and name them with --weights"


def read_state(weights: str | os.PathLike[str] | None, expected: str) -> dict[str, Tensor]:
    """Read a state dict; ``expected`` says what it is and where to get it."""
    if weights is None:
        raise MissingFileError(f"{expected} are missing: {_HINT}")
    with reading(weights, expected, _HINT) as path:
        if path.suffix == ".safetensors":
            return load_file(path)
        refused = f"{path} must hold {expected}, but is neither a .safetensors file nor a PyTorch "
        state = load_tensors(path, "the weights", f"{refused}checkpoint, or not a safe one")
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        held = list(state)[:5] if isinstance(state, Mapping) else type(state).__name__
        raise FileFormatError(
            f"{weights} must hold a state dict, names with tensors, got {held}: save "
            "network.state_dict() alone"
        )
    return dict(state)


def fit(
    network: nn.Module, state: Mapping[str, Tensor], source: str, unused: tuple[str, ...] = ()
) -> None:
    """Load all weights into a network, except those whose names begin with ``unused``."""
    wanted = network.state_dict()
    given = {
        name: value
        for name, value in state.items()
        if name in wanted or not name.startswith(unused)
    }
    shapes = {
        f"{name} {tuple(given[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in wanted.keys() & given.keys()
        if given[name].shape != wanted[name].shape
    }
    wrong = {
        # Files of early versions of PyTorch lack this count, which only training reads.
        "missing": {
            name for name in wanted.keys() - given.keys() if "num_batches_tracked" not in name
        },
        "unexpected": given.keys() - wanted.keys(),
        "of another shape": shapes,
    }
    found = [f"{len(n)} {what} ({listed(sorted(n), 3)})" for what, n in wrong.items() if n]
    if found:
        raise FileFormatError(f"{source} do not fit: {', '.join(found)}")
    for name, value in given.items():
        check_dense(value, f"weights '{name}' of {source}")
    network.load_state_dict(given)
