"""Which rows a head has not learned, or not any more: by keyed fingerprints, kept in its file.

A head that keeps sums cannot tell whether a row is among them. That a row was forgotten, or held
out to calibrate with, and not learned since, makes it likely that it is not. It is no proof, since
copies of the row may have been learned.
"""

import secrets
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lastlayer.core.tensors import row_bytes
from lastlayer.errors import DataError

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

MOST = 10_000  # rows of each record: the latest
_SIZE = 8  # bytes of a fingerprint
# The records, each {"key": …, "rows": …} in hexadecimal digits, and what became of their rows.
FORGOTTEN, HELD_OUT = "forgotten", "held_out"
_WHY = {
    FORGOTTEN: "were forgotten before, and have not been learned since",
    HELD_OUT: "were held out to calibrate with, and have not been learned",
}


def refuse_not_learned(head: "Head", z: Tensor, y: Tensor) -> None:
    """Refuse to forget rows of which the head knows that it has not learned them."""
    for record, why in _WHY.items():
        kept = set(_kept(head, record))
        if found := sum(one in kept for one in _prints(head, record, z, y)) if kept else 0:
            raise DataError(
                f"{found} of these {len(y)} rows {why}: leave them out, or say again=True "
                "(--again) if the head has learned copies of them; nothing was changed"
            )


def note_forgotten(head: "Head", z: Tensor, y: Tensor) -> None:
    """Keep that these rows were forgotten."""
    _note(head, FORGOTTEN, z, y)


def note_held_out(
    head: "Head", z: Tensor, y: Tensor, learned: Iterable[tuple[Tensor, ...]]
) -> None:
    """Keep that these rows were not learned, but for those with a copy among those learned."""
    _note(head, HELD_OUT, z, y)
    if HELD_OUT not in head.records:
        return
    for rows, classes, *_ in learned:
        # Few rows begin with a number that is in another: only those are looked at.
        alike = torch.isin(rows[:, 0], z[:, 0].to(rows))
        note_learned(head, HELD_OUT, rows[alike], classes[alike], all_copies=True)


def note_learned(head: "Head", record: str, z: Tensor, y: Tensor, all_copies: bool = False) -> None:
    """Keep that these rows, if they are in a record, are learned."""
    kept = _kept(head, record)
    if not kept or not len(y):
        return
    prints = _prints(head, record, z, y)
    times = Counter({one: len(kept) for one in prints} if all_copies else prints)
    if again := times & Counter(kept):
        stays = []
        for one in kept:
            if again[one]:
                again[one] -= 1
            else:
                stays.append(one)
        _keep(head, record, stays)


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


def _note(head: "Head", record: str, z: Tensor, y: Tensor) -> None:
    """Keep the fingerprints of rows, if the head can forget and cannot tell by itself."""
    if head.abilities.keeps_samples or not (head.abilities.forgets and len(y)):
        return
    if record not in head.records:
        head.records = {**head.records, record: {"key": secrets.token_hex(16), "rows": ""}}
    _keep(head, record, [*_kept(head, record), *_prints(head, record, z[-MOST:], y[-MOST:])])


def _kept(head: "Head", record: str) -> tuple[str, ...]:
    return _split(head.records[record]["rows"]) if record in head.records else ()


@lru_cache(maxsize=8)
def _split(rows: str) -> tuple[str, ...]:
    return tuple(rows[at : at + 2 * _SIZE] for at in range(0, len(rows), 2 * _SIZE))


def _keep(head: "Head", record: str, prints: list[str]) -> None:
    held = {**head.records[record], "rows": "".join(prints[-MOST:])}
    head.records = {**head.records, record: held}


def _prints(head: "Head", record: str, z: Tensor, y: Tensor) -> list[str]:
    """Return the fingerprint of each row with its class, whatever type its numbers have."""
    key = bytes.fromhex(head.records[record]["key"])
    return [
        blake2b(row + c.to_bytes(8, "little"), digest_size=_SIZE, key=key).hexdigest()
        for row, c in zip(row_bytes(z), y.tolist(), strict=True)
    ]
