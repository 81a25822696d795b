"""Names: looked up, with the nearest right one for a wrong one, and made printable."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from lastlayer.core.checks import expect, short
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


def listed(names: Sequence[str], most: int = FEW) -> str:
    """Return the first names of a list, as text.

    >>> listed(["a", "b", "c"], 2), listed([])
    ('a, b, …', 'none')
    """
    return ", ".join([*names[:most], *(["…"] if len(names) > most else [])]) or "none"


def first_few(names: Sequence[str], most: int = FEW) -> str:
    """Return the first names of a list, and how many more there are.

    >>> first_few(["a", "b", "c"], 2), first_few(["a", "b"], 2)
    ('a, b and 1 more', 'a, b')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def joined(names: Sequence[str]) -> str:
    """Return names as a sentence lists them.

    >>> joined(["a", "b", "c"]), joined(["a"])
    ('a, b and c', 'a')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def percent(share: float, digits: int = 1) -> str:
    """Return a share as it is written.

    >>> percent(0.7461), percent(0.05, 0)
    ('74.6 %', '5 %')
    """
    return f"{100 * share:.{digits}f} %"


def _there_are(name: str, known: list[str]) -> str:
    """Return a list of the known names; of many, only the nearest few."""
    if len(known) <= MOST:
        return f"there are: {', '.join(known) or 'none'}"
    near = get_close_matches(name[:200], known, n=FEW, cutoff=0.3) or known[:FEW]
    return f"nearest of {len(known)}: {', '.join(near)}"


# Control characters, lone surrogates and non-characters can end a line, a chart or a page early;
# marks that change the direction of writing make a name look like another.
_ODD = "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
_UNPRINTABLE = re.compile(_ODD)
# What Python writes after the backslash for each of them, and no more.
_SPELT = (
    r"(?:[tnr]|x(?:[01][0-9a-f]|7f|[89][0-9a-f])"
    r"|u(?:202[89a-e]|206[6-9]|d[89a-f][0-9a-f]{2}|fd[de][0-9a-f]|fff[ef]))"
)
_TO_CODE = re.compile(rf"(\\*)({_ODD})|(\\+)(?={_SPELT})")
_TO_LABEL = re.compile(rf"(\\+)({_SPELT})")


def printable(text: str) -> str:
    r"""Return a name that can be printed, drawn and put into a page: odd characters are spelt out.

    Different names stay different, unless one spells out the other.

    >>> print(printable("owl\n"), printable("a\x00"), printable("Käuzchen ✓"))
    owl\n a\x00 Käuzchen ✓
    """
    return _UNPRINTABLE.sub(_spelt, text)


class ClassName(str):
    """The name of a class: a label as ``class_name`` codes it. A name is never coded again."""

    __slots__ = ()


def class_name(label: str) -> ClassName:
    r"""Return what a class with this label is called: the label, but for characters that are odd.

    Those are spelt out, as by ``printable``. Backslashes before one, or before what would be read
    as one, are doubled: so different labels have different names, and ``label_of`` gives each
    back. All other text, with or without backslashes, is its own name.

    >>> print(class_name("owl\n"), class_name(r"owl\n"), class_name(r"C:\data"))
    owl\n owl\\n C:\data
    """
    return ClassName(_TO_CODE.sub(_coded, label))


def label_of(name: str) -> str:
    r"""Return the label of a name that ``class_name`` made.

    >>> label_of(r"owl\n"), label_of(r"owl\\n"), label_of(r"C:\data")
    ('owl\n', 'owl\\n', 'C:\\data')
    """
    return _TO_LABEL.sub(_decoded, name)


def _spelt(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def _coded(found: re.Match[str]) -> str:
    before, odd, literal = found.groups()
    return 2 * literal if odd is None else 2 * before + ascii(odd)[1:-1]


def _decoded(found: re.Match[str]) -> str:
    pairs, odd = divmod(len(found[1]), 2)
    # An odd number of backslashes: the last one is that of the character.
    after = f"\\{found[2]}".encode().decode("unicode_escape") if odd else found[2]
    return pairs * "\\" + after
