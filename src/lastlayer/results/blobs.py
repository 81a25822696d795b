"""Arrays as the results file stores them: compressed, little-endian, with type and shape."""

import json
import re
import zlib
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastlayer.errors import DataError

Packed = tuple[str, str, bytes]  # type, shape, content

MOST = 512 << 20  # bytes of one array, in memory
AT_ONCE = 1 << 30  # bytes of the arrays that are read in one call
_TYPE = re.compile(r"<[fi][248]|[|][iu]1|[|]b1")


def pack(array: NDArray[Any]) -> Packed:
    """Return an array as it is stored; equal arrays give equal bytes.

    >>> kind, shape, content = pack(np.array([[1, 2]], dtype=np.int32))
    >>> kind, shape
    ('<i4', '[1, 2]')
    """
    if array.nbytes > MOST:
        raise DataError(
            f"an array must take at most {MOST >> 20} MiB, got {array.nbytes >> 20} MiB"
        )
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return plain.dtype.str, json.dumps(array.shape), zlib.compress(plain.tobytes(), level=6)


def unpack(kind: str, shape: str, content: bytes) -> NDArray[Any]:
    """Return the array that was packed; anything that ``pack`` did not write is refused.

    >>> unpack(*pack(np.arange(3.0))).tolist()
    [0.0, 1.0, 2.0]
    """
    sides, size = _layout(kind, shape)
    if not isinstance(content, bytes):
        raise ValueError(f"expected bytes, got {type(content).__name__}")
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(content, size + 1)  # never more than was announced
    if len(raw) != size or not unpacker.eof:
        raise ValueError(f"expected {size} bytes for the shape {shape}, got more or fewer")
    return np.frombuffer(raw, dtype=kind).reshape(sides)


def unpacked_size(kind: str, shape: str) -> int:
    """Return how many bytes an array takes in memory."""
    return _layout(kind, shape)[1]


def digest(packed: Packed) -> str:
    """Return the checksum of an array as it is stored: 128 bits of a SHA-256."""
    kind, shape, content = packed
    return sha256(f"{kind} {shape} ".encode() + content).hexdigest()[:32]


def _layout(kind: str, shape: str) -> tuple[list[int], int]:
    """Return the sides and the size in bytes, both within bounds."""
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise ValueError(f"a type must be such as '<f4', got {str(kind)[:20]!r}")
    sides = json.loads(shape) if isinstance(shape, str) and len(shape) < 200 else None
    if not isinstance(sides, list) or not all(type(side) is int and side >= 0 for side in sides):
        raise ValueError(f"a shape must be such as [5, 10], got {str(shape)[:20]!r}")
    size = prod(sides) * np.dtype(kind).itemsize
    if size > MOST or len(sides) > 8:
        raise ValueError(f"an array must take at most {MOST >> 20} MiB, got {size >> 20} MiB")
    return sides, size
