"""Which rows a head was asked to forget of late: by keyed fingerprints, kept in its file.

A head that keeps sums cannot tell whether a row is still among them. That a row was forgotten, and
not learned since, makes it likely that it is not: a request that is repeated by mistake can be told
from a first one. It is no proof, since the row may have been learned several times.
"""

import secrets
import warnings
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING

from torch import Tensor

from lastlayer.core.tensors import row_bytes
from lastlayer.errors import ForgottenBeforeWarning

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

MOST = 10_000  # rows: the latest
_SIZE = 8  # bytes of a fingerprint
_NAME = "forgotten"  # of the record: {"key": …, "rows": …}, in hexadecimal digits


def warn_if_forgotten(head: "Head", z: Tensor, y: Tensor) -> None:
    """Warn if some of these rows were forgotten before, and not learned since."""
    kept = set(_kept(head))
    if before := sum(one in kept for one in _prints(head, z, y)) if kept else 0:
        warnings.warn(
            f"{before} of these {len(y)} rows were forgotten before, and have not been "
            "learned since: unless the head had learned copies of them, they are now taken "
            "out twice, and learning them once more puts that right",
            ForgottenBeforeWarning,
            stacklevel=4,
        )


def note_forgotten(head: "Head", z: Tensor, y: Tensor) -> None:
    """Keep that these rows were forgotten, if the head itself cannot tell."""
    if head.abilities.keeps_samples or not len(y):
        return
    if _NAME not in head.records:
        head.records = {**head.records, _NAME: {"key": secrets.token_hex(16), "rows": ""}}
    _keep(head, [*_kept(head), *_prints(head, z[-MOST:], y[-MOST:])])


def note_learned(head: "Head", z: Tensor, y: Tensor) -> None:
    """Keep that these rows, if they were forgotten, are learned again."""
    kept = _kept(head)
    if again := Counter(_prints(head, z, y)) & Counter(kept) if kept else Counter():
        stays = []
        for one in kept:
            if again[one]:
                again[one] -= 1
            else:
                stays.append(one)
        _keep(head, stays)


def is_forgotten(value: object) -> bool:
    """Return whether a value has the form of such a record."""
    if not isinstance(value, dict) or value.keys() != {"key", "rows"}:
        return False
    if not all(isinstance(text, str) and text.isascii() for text in value.values()):
        return False
    rows = value["rows"]
    return (
        len(value["key"]) == 32
        and len(rows) % (2 * _SIZE) == 0
        and len(rows) <= 2 * _SIZE * MOST
        and set(value["key"] + rows) <= set("0123456789abcdef")
    )


def _kept(head: "Head") -> list[str]:
    rows = head.records[_NAME]["rows"] if _NAME in head.records else ""
    return [rows[at : at + 2 * _SIZE] for at in range(0, len(rows), 2 * _SIZE)]


def _keep(head: "Head", prints: list[str]) -> None:
    held = {**head.records[_NAME], "rows": "".join(prints[-MOST:])}
    head.records = {**head.records, _NAME: held}


def _prints(head: "Head", z: Tensor, y: Tensor) -> list[str]:
    """Return the fingerprint of each row with its class, whatever type its numbers have."""
    key = bytes.fromhex(head.records[_NAME]["key"])
    return [
        blake2b(row + c.to_bytes(8, "little"), digest_size=_SIZE, key=key).hexdigest()
        for row, c in zip(row_bytes(z), y.tolist(), strict=True)
    ]
