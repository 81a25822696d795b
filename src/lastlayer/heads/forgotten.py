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

from lastlayer.core.names import first_few
from lastlayer.core.tensors import row_bytes
from lastlayer.errors import UnlearnedRowsError

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

MOST = 10_000  # rows of each record: the latest
_SIZE = 8  # bytes of a fingerprint
# The records, each {"key": …, "rows": …} in hexadecimal digits, and what became of their rows.
FORGOTTEN, HELD_OUT = "forgotten", "held_out"
_WHY = {
    FORGOTTEN: "forgotten before and not learned since",
    HELD_OUT: "held out to calibrate with and not learned",
}
_LEFT_OUT = {FORGOTTEN: "forgotten before", HELD_OUT: "never learned (held out to calibrate with)"}


def not_learned(head: "Head", z: Tensor, y: Tensor) -> dict[str, list[int]]:
    """Return the rows of which the head knows that it has not learned them, by record."""
    found = {}
    for record in _WHY:
        if kept := set(_kept(head, record)):
            prints = _prints(head, record, z, y)
            found[record] = [row for row, one in enumerate(prints) if one in kept]
    return {record: rows for record, rows in found.items() if rows}


def refuse(found: dict[str, list[int]], n: int, numbers: Tensor | None = None) -> None:
    """Refuse to forget rows found among n; ``numbers`` (n,) is what to call them, if not 0…n−1."""
    if not found:
        return
    said = []
    for record, rows in found.items():
        called = rows if numbers is None else numbers[rows].tolist()
        which = f"row{'s' * (len(rows) > 1)} {first_few([str(row) for row in called])}"
        who = "this row" if n == 1 else f"{len(rows)} of these {n} rows"
        said.append(f"{who} {_were(rows)} {_WHY[record]} ({which})")
    raise UnlearnedRowsError("; ".join(said))


def say_left_out(found: dict[str, list[int]]) -> str:
    """Return how many rows were left out, and why; empty where none was."""
    return "; ".join(
        f"{len(rows)} {_were(rows)} {_LEFT_OUT[record]} and {_were(rows)} left out"
        for record, rows in found.items()
    )


def _were(rows: list[int]) -> str:
    return "was" if len(rows) == 1 else "were"


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
