"""Weights from a file into a network: safetensors, or a state dict that cannot run code."""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from lastlayer.core.files import check_archive, reading
from lastlayer.core.tensors import check_dense
from lastlayer.errors import FileFormatError, MissingFileError

_HINT = "download and name them with --weights"


def read_state(weights: str | os.PathLike[str] | None, expected: str) -> dict[str, Tensor]:
    """Read a state dict; ``expected`` says what it is and where to get it."""
    if weights is None:
        raise MissingFileError(f"expected {expected}, but none were given: {_HINT}")
    with reading(weights, expected, _HINT) as path:
        if path.suffix == ".safetensors":
            return load_file(path)
        if zipfile.is_zipfile(path):
            check_archive(path, "the weights")
        state = _load_checkpoint(path, expected)
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        held = list(state)[:5] if isinstance(state, Mapping) else type(state).__name__
        raise FileFormatError(
            f"expected a state dict in {weights}, names with tensors, got {held}: save "
            "network.state_dict() alone"
        )
    return dict(state)


def _load_checkpoint(path: Path, expected: str) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        # PyTorch's own words would tell how to load it all the same, and let it run code.
        raise FileFormatError(
            f"expected {expected}, but {path} is neither a .safetensors file nor a PyTorch "
            "checkpoint, or not a safe one"
        ) from error


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
    found = [f"{len(names)} {what} ({_few(names)})" for what, names in wrong.items() if names]
    if found:
        raise FileFormatError(f"expected {source}, but they do not fit: {', '.join(found)}")
    for name, value in given.items():
        check_dense(value, f"weights '{name}' of {source}")
    network.load_state_dict(given)


def _few(names: set[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (", …" if len(listed) > 3 else "")
