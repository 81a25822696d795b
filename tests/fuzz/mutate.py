"""Seeded damage to files: bytes flipped, cut, doubled, filled, and numbers made large."""

import random
import re

ODD = (
    b"", b"\x00", b"\xff" * 8, b"[" * 3000, b"{\"a\":" * 3000, b"9" * 400, b"-1", b"1e999", b"NaN",
    b"\n", b"'", b"\"", b"=cmd()", b"../..", b"\xf0\x9f\x92\xa9", b"\xed\xa0\x80", b"%s%n",
    b"[/nope]",
)  # fmt: skip


def mutate(content: bytes, random_: random.Random) -> bytes:
    """Return a damaged copy; a few kinds of damage at once, at times none that shows."""
    for _ in range(random_.choice((1, 1, 1, 2, 4))):
        content = random_.choice(DAMAGES)(content, random_)
    return content


def _place(content: bytes, random_: random.Random) -> int:
    """Choose a place, most often in the first or last part, where the headers are."""
    n = len(content)
    if n == 0:
        return 0
    reach = random_.choice((n, min(n, 64), min(n, 1024)))
    place = random_.randrange(reach)
    return place if random_.random() < 0.6 else n - 1 - place


def _flip(content: bytes, random_: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random_.choice((1, 1, 2, 8))):
        if changed:
            changed[_place(content, random_)] ^= 1 << random_.randrange(8)
    return bytes(changed)


def _cut(content: bytes, random_: random.Random) -> bytes:
    return content[: _place(content, random_)]


def _drop(content: bytes, random_: random.Random) -> bytes:
    place = _place(content, random_)
    return content[:place] + content[place + random_.choice((1, 4, 100)) :]


def _insert(content: bytes, random_: random.Random) -> bytes:
    place = _place(content, random_)
    return content[:place] + random_.choice(ODD) + content[place:]


def _fill(content: bytes, random_: random.Random) -> bytes:
    place, length = _place(content, random_), random_.choice((1, 4, 8, 64))
    byte = random_.choice((b"\x00", b"\xff", b"\x7f"))
    return content[:place] + byte * length + content[place + length :]


def _double(content: bytes, random_: random.Random) -> bytes:
    place = _place(content, random_)
    return content[:place] + content[place : place + 1000] * 2 + content[place + 1000 :]


def _number(content: bytes, random_: random.Random) -> bytes:
    """Put another number, or something else, in the place of one that is written as text."""
    found = list(re.finditer(rb"\d+", content[:100_000]))
    if not found:
        return _flip(content, random_)
    match = random_.choice(found)
    other = random_.choice((b"0", b"-1", b"1.5", b"10" + b"0" * 25, b"18446744073709551615", *ODD))
    return content[: match.start()] + other + content[match.end() :]


DAMAGES = (_flip, _flip, _cut, _drop, _insert, _fill, _double, _number, _number)
