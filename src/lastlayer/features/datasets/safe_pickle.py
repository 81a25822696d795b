"""Read the pickles that CIFAR is published as, without letting them run anything."""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from lastlayer.errors import FileFormatError


def _empty_array(kind: type, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Stand in for numpy's own function, whose home differs between its versions."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError(f"expected a plain array, got {kind}")
    return np.ndarray(shape, dtype)


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"expected only arrays, got {module}.{name}")
        return _ALLOWED[module, name]


def load_arrays(content: bytes, source: str) -> dict[str, Any]:
    """Unpickle a dictionary of arrays, numbers and text; anything else is refused.

    >>> load_arrays(pickle.dumps({"labels": [6, 9]}), "batch")
    {'labels': [6, 9]}
    """
    try:
        # Python 2 wrote these files: latin1 turns its strings into text, byte for byte.
        loaded = _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise FileFormatError(f"{source} cannot be read as a pickle of arrays: {error}") from error
    if not isinstance(loaded, dict):
        raise FileFormatError(f"expected a dictionary in {source}, got {type(loaded).__name__}")
    return loaded
