"""What is recorded about a head beside what it has learned: ``head.records``, kept in its file.

A plain dict of JSON values, each key changed by its owner:

- ``watch``: the state of a watch.
- ``change``: the number of the change of a store through which the head has learned.
- ``deltas``: which deltas of which stores it contains: {store: [delta, …]}.
- ``judged``: how it was judged.
- ``origin``: what it was learned from, in sentences.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lastlayer.core.checks import expect, kind_of, short
from lastlayer.errors import ArgumentError, MergeError, OptionError

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

RECORDS = ("watch", "change", "deltas", "judged", "origin")


def check_records(records: Mapping[str, Any]) -> dict[str, Any]:
    """Return records as a file keeps them; refuse what no file can hold."""
    expect(records, Mapping, "records", "a dict")
    for key, value in records.items():
        if key not in RECORDS:
            raise OptionError(f"records may hold {', '.join(RECORDS)}, got {short(key)}")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"records['{key}'] must be JSON values: {error}") from None
        if not is_record(key, value):
            raise OptionError(f"records['{key}'] must be {_FORMS[key]}, got {kind_of(value)}")
    return dict(records)


_FORMS = {
    "watch": "a dict",
    "change": "a whole number of at least 0",
    "deltas": "a dict of lists without repetition, of text or whole numbers: {store: [delta, …]}",
    "judged": "a dict",
    "origin": "a list of sentences",
}


def is_record(key: str, value: Any) -> bool:
    """Return whether a value has the form that a record has."""
    if key == "change":
        return type(value) is int and value >= 0
    if key == "origin":
        return isinstance(value, list) and all(isinstance(sentence, str) for sentence in value)
    if key == "deltas":
        return isinstance(value, dict) and all(map(_is_list_of_names, value.values()))
    return isinstance(value, dict)


def _is_list_of_names(names: Any) -> bool:
    plain = isinstance(names, list) and all(type(name) in (str, int) for name in names)
    return plain and len(set(names)) == len(names)


def joint_records(head: "Head", other: "Head") -> dict[str, Any]:
    """Return what stays true of two heads together: their origin, and their deltas.

    A watch, the change learned through and a judgement are those of one head alone. A delta that
    both contain would count twice.
    """
    joint: dict[str, Any] = {}
    own, theirs = head.records.get("deltas", {}), other.records.get("deltas", {})
    for store in {**own, **theirs}:
        mine, more = own.get(store, []), theirs.get(store, [])
        if twice := sorted(set(mine) & set(more), key=str):
            raise MergeError(
                f"both heads contain delta {short(twice[0])} of store {short(store)}, whose rows "
                "would count twice: merge heads that have learned different rows"
            )
        joint.setdefault("deltas", {})[store] = [*mine, *more]
    if origin := [*head.records.get("origin", []), *other.records.get("origin", [])]:
        joint["origin"] = origin
    return joint
