"""Arrays as they lie in the results file: compressed, little-endian, with type and shape."""

import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Packed = tuple[str, str, bytes]  # type, shape, content


def pack(array: NDArray[Any]) -> Packed:
    """Give what is stored of an array; the same array gives the same bytes.

    >>> kind, shape, content = pack(np.array([[1, 2]], dtype=np.int32))
    >>> kind, shape
    ('<i4', '[1, 2]')
    """
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return plain.dtype.str, json.dumps(plain.shape), zlib.compress(plain.tobytes(), level=6)


def unpack(kind: str, shape: str, content: bytes) -> NDArray[Any]:
    """Give the array again.

    >>> unpack(*pack(np.arange(3.0))).tolist()
    [0.0, 1.0, 2.0]
    """
    return np.frombuffer(zlib.decompress(content), dtype=kind).reshape(json.loads(shape))
