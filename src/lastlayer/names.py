"""Names: looked up, with the nearest right one for a wrong one, and made printable."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from lastlayer.arguments import expect, short
from lastlayer.errors import UnknownNameError

T = TypeVar("T")
MOST, FEW = 40, 5  # names that an error lists in full, and how many of more


def look_up(name: str, table: Mapping[str, T], kind: str) -> T:
    """Return ``table[name]``, or raise an error with the nearest name and what there is.

    >>> look_up("slda", {"mean": 1, "slda": 2}, "head")
    2
    >>> look_up("sldaa", {"mean": 1, "slda": 2}, "head")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    lastlayer.errors.UnknownNameError: unknown head 'sldaa'; did you mean 'slda'? there are: ...
    """
    expect(name, str, "name", f"the name of a {kind}")
    if name in table:
        return table[name]
    near = get_close_matches(name[:200], table, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    raise UnknownNameError(
        f"unknown {kind} '{printable(short(name, 200))}'{hint} {_there_are(name, list(table))}"
    )


def _there_are(name: str, known: list[str]) -> str:
    """Return a list of the known names; of many, only the nearest few."""
    if len(known) <= MOST:
        return f"there are: {', '.join(known) or 'none'}"
    near = get_close_matches(name[:200], known, n=FEW, cutoff=0.3) or known[:FEW]
    return f"nearest of {len(known)}: {', '.join(near)}"


# Control characters, lone surrogates and non-characters can end a line, a chart or a page early;
# marks that change the direction of writing make a name look like another.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def printable(text: str) -> str:
    r"""Return a name that can be printed, drawn and put into a page: odd characters are spelt out.

    Different names stay different, unless one spells out the other.

    >>> print(printable("owl\n"), printable("a\x00"), printable("Käuzchen ✓"))
    owl\n a\x00 Käuzchen ✓
    """
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)
