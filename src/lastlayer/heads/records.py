"""What is recorded about a head beside what it has learned: ``head.records``, kept in its file.

A plain dict of JSON values, each key changed by its owner:

- ``watch``: the state of a watch.
- ``change``: the number of the change of a store through which the head has learned.
- ``deltas``: which deltas of which stores it contains: {store: [delta, …]}.
- ``shards``: which shards it has learned, by their fingerprints.
- ``forgotten``: which rows it was asked to forget of late, by keyed fingerprints.
- ``held_out``: which rows it was calibrated with in place of learning them, likewise.
- ``judged``: how it was judged.
- ``origin``: what it was learned from, in sentences.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lastlayer.core.checks import expect, kind_of, short
from lastlayer.errors import ArgumentError, MergeError, OptionError
from lastlayer.heads.forgotten import FORGOTTEN, HELD_OUT, is_forgotten

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

RECORDS = ("watch", "change", "deltas", "shards", "forgotten", "held_out", "judged", "origin")


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
    "shards": "a list of texts without repetition",
    FORGOTTEN: "a dict of a key and of rows, in hexadecimal digits",
    HELD_OUT: "a dict of a key and of rows, in hexadecimal digits",
    "judged": "a dict",
    "origin": "a list of sentences",
}


def is_record(key: str, value: Any) -> bool:
    """Return whether a value has the form that a record has."""
    if key == "change":
        return type(value) is int and value >= 0
    if key == "origin":
        return isinstance(value, list) and all(isinstance(sentence, str) for sentence in value)
    if key in (FORGOTTEN, HELD_OUT):
        return is_forgotten(value)
    if key == "shards":
        return _is_list_of_names(value) and all(type(one) is str for one in value)
    if key == "deltas":
        return isinstance(value, dict) and all(map(_is_list_of_names, value.values()))
    return isinstance(value, dict)


def _is_list_of_names(names: Any) -> bool:
    plain = isinstance(names, list) and all(type(name) in (str, int) for name in names)
    return plain and len(set(names)) == len(names)


def joint_records(head: "Head", other: "Head") -> dict[str, Any]:
    """Return what stays true of two heads together: their origin, their deltas and their shards.

    A watch, the change learned through and a judgement are those of one head alone. A delta or a
    shard that both contain would count twice.
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
    shards = head.records.get("shards", []), other.records.get("shards", [])
    if twice := repeated_shards(shards[1], shards[0]):
        raise MergeError(
            f"both heads have learned {len(twice)} of the same shards, whose rows would count "
            "twice: merge heads that have learned different rows"
        )
    if any(shards):
        joint["shards"] = [*shards[0], *shards[1]]
    if origin := [*head.records.get("origin", []), *other.records.get("origin", [])]:
        joint["origin"] = origin
    return joint


def repeated_shards(prints: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return those of some fingerprints that are known: of the same rows, or of all.

    >>> repeated_shards(["a train", "b", "c test", "d"], ["a test", "b train", "c"])
    ['b', 'c test']
    """
    splits: dict[str, set[str]] = {}
    for one in known:
        digest, _, rows = one.partition(" ")
        splits.setdefault(digest, set()).add(rows)
    found = []
    for one in prints:
        digest, _, rows = one.partition(" ")
        there = splits.get(digest, set())
        if there and (not rows or "" in there or rows in there):
            found.append(one)
    return found
