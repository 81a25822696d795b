"""Whether the tensors of a file can be the state of a head: asked before one is made of them.

A file may have been altered and given a new checksum. What a head would take in memory follows from
its settings; so they are compared with the tensors that are there, by a head without memory.
"""

from collections.abc import Callable, Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lastlayer.core.packed import lower_parts
from lastlayer.core.tensors import MOST_CLASSES
from lastlayer.errors import StateError

if TYPE_CHECKING:
    from lastlayer.heads.head import Head


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


_MOST = 1e200  # sums of squares of the largest features are less
_COUNTS = ("count", "spread", "wear", "scale")
