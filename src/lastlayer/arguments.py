"""Check arguments: one of a wrong type is named, with what was expected instead."""

import math
import operator
import os
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from lastlayer.errors import ArgumentError, OptionError

LONGEST_NAME = 255  # bytes; no usual file system takes a longer one


def expect(value: object, kinds: type | tuple[type, ...], name: str, expected: str) -> None:
    """Raise ArgumentError unless ``value`` is of one of these types.

    >>> expect([1], str, "name", "the name of a head")
    Traceback (most recent call last):
    ...
    lastlayer.errors.ArgumentError: expected the name of a head as name, got a list
    """
    if not isinstance(value, kinds):
        raise ArgumentError(f"expected {expected} as {name}, got {kind_of(value)}")


def whole(value: Any, name: str, least: int | None = None, most: int | None = None) -> int:
    """Return a whole number within bounds, numpy's included; True and 2.0 do not count as one.

    >>> whole(3, "k", least=1)
    3
    >>> whole(0, "k", least=1)
    Traceback (most recent call last):
    ...
    lastlayer.errors.OptionError: expected k of at least 1, got 0
    """
    if isinstance(value, bool):
        raise ArgumentError(f"expected a whole number as {name}, got a bool")
    try:
        number = operator.index(value)
    except Exception:  # an object may raise anything
        raise ArgumentError(f"expected a whole number as {name}, got {kind_of(value)}") from None
    if (least is not None and number < least) or (most is not None and number > most):
        if most is None:
            bounds = f"of at least {least}"
        else:
            bounds = f"of at most {most}" if least is None else f"from {least} to {most}"
        raise OptionError(f"expected {name} {bounds}, got {short(number)}")
    return number


def real(value: Any, name: str) -> float:
    """Return a finite number as a float; text and True do not count as one.

    >>> real(1, "lr")
    1.0
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentError(f"expected a number as {name}, got {kind_of(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise OptionError(f"expected a finite number as {name}, got {short(value)}")
    return number


def flag(value: Any, name: str) -> bool:
    """Return True or False; refuse anything else, even where Python would accept it.

    >>> flag(1, "diagonal")
    Traceback (most recent call last):
    ...
    lastlayer.errors.ArgumentError: expected True or False as diagonal, got an int
    """
    if type(value).__name__ in ("bool", "bool_"):  # numpy's, too
        return bool(value)
    raise ArgumentError(f"expected True or False as {name}, got {kind_of(value)}")


def choice(value: Any, among: Sequence[str], name: str) -> str:
    """Return one of a few words.

    >>> choice("flat", ("uniform", "empirical"), "prior")
    Traceback (most recent call last):
    ...
    lastlayer.errors.OptionError: expected prior 'uniform' or 'empirical', got 'flat'
    """
    if isinstance(value, str) and value in among:
        return value
    words = " or ".join(f"'{word}'" for word in among)
    if isinstance(value, str):
        raise OptionError(f"expected {name} {words}, got '{short(value)}'")
    raise ArgumentError(f"expected {name} {words}, got {kind_of(value)}")


def a_path(value: Any, name: str = "path") -> Path:
    """Return a path; anything but text and path objects is refused, and so is a null character."""
    expect(value, (str, os.PathLike), name, "a path")
    try:
        text = os.fsdecode(value)
    except Exception:  # a path object may raise anything
        raise ArgumentError(f"expected a path as {name}, got {kind_of(value)}") from None
    if not text or "\0" in text or not _can_be_encoded(text):
        raise OptionError(f"expected a path as {name}, got {text!r}")
    if max(len(os.fsencode(part)) for part in text.split("/")) > LONGEST_NAME:
        raise OptionError(
            f"expected file names of at most {LONGEST_NAME} bytes in {name}, got {short(text)}"
        )
    return Path(text)


def _can_be_encoded(text: str) -> bool:
    try:
        return bool(os.fsencode(text))
    except UnicodeEncodeError:  # a lone surrogate, which no file system takes
        return False


def kind_of(value: object) -> str:
    """Return what a value is, for a message.

    >>> kind_of(None), kind_of(2.5), kind_of([1])
    ('None', 'a float', 'a list')
    """
    if value is None:
        return "None"
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    article = "the type" if isinstance(value, type) else "an" if name[:1] in "aeiouAEIO" else "a"
    return f"{article} {name}"


def short(value: object, limit: int = 60) -> str:
    """Return a value as text that fits into a message, whatever it is.

    >>> short(10**100)
    '1000000000000000000000000000…'
    """
    try:
        text = str(value)
    except Exception:  # more digits than Python writes, or an object that raises anything
        return kind_of(value)
    return text if len(text) <= limit else f"{text[: limit // 2 - 2]}…"
