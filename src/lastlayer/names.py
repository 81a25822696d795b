"""Look a name up in a catalogue; a wrong one gets the nearest right one."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from lastlayer.errors import UnknownNameError

T = TypeVar("T")


def look_up(name: str, table: Mapping[str, T], kind: str) -> T:
    """Return ``table[name]``, or say what was meant and what there is.

    >>> look_up("slda", {"mean": 1, "slda": 2}, "head")
    2
    >>> look_up("sldaa", {"mean": 1, "slda": 2}, "head")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    lastlayer.errors.UnknownNameError: unknown head 'sldaa'; did you mean 'slda'? there are: ...
    """
    if name in table:
        return table[name]
    near = get_close_matches(str(name), table, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    raise UnknownNameError(f"unknown {kind} '{name}'{hint} there are: {', '.join(table) or 'none'}")
