"""Check arguments; the message names the argument, what it must be, and what it is."""

import math
import operator
import os
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from lastlayer.errors import ArgumentError, OptionError

LONGEST_NAME = 255  # bytes; no usual file system takes a longer one


def expect(value: object, kinds: type | tuple[type, ...], name: str, what: str) -> None:
    """Raise ArgumentError unless ``value`` is of one of these types; ``what`` says which.

    >>> expect([1], str, "name", "the name of a head")
    Traceback (most recent call last):
    ...
    lastlayer.errors.ArgumentError: name must be the name of a head, got a list
    """
    if not isinstance(value, kinds):
        raise ArgumentError(f"{name} must be {what}, got {kind_of(value)}")


MOST_SEED = (1 << 63) - 1  # that PyTorch's generators take


def whole(value: Any, name: str, least: int | None = None, most: int | None = None) -> int:
    """Return an integer within bounds, Python's or numpy's; refuse True and 2.0.

    >>> whole(3, "k", least=1)
    3
    >>> whole(0, "k", least=1)
    Traceback (most recent call last):
    ...
    lastlayer.errors.OptionError: k must be at least 1, got 0
    >>> whole(9, "k", least=1, most=5)
    Traceback (most recent call last):
    ...
    lastlayer.errors.OptionError: k must be from 1 to 5, got 9
    """
    if isinstance(value, bool):
        raise ArgumentError(f"{name} must be an integer, got a bool")
    try:
        number = operator.index(value)
    except Exception:  # an object may raise anything
        raise ArgumentError(f"{name} must be an integer, got {kind_of(value)}") from None
    if (least is not None and number < least) or (most is not None and number > most):
        if most is None:
            bounds = f"at least {least}"
        else:
            bounds = f"at most {most}" if least is None else f"from {least} to {most}"
        raise OptionError(f"{name} must be {bounds}, got {short(number)}")
    return number


def real(value: Any, name: str) -> float:
    """Return a finite number as a float; refuse text and True.

    >>> real(1, "lr")
    1.0
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentError(f"{name} must be a number, got {kind_of(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise OptionError(f"{name} must be finite, got {short(value)}")
    return number


def flag(value: Any, name: str) -> bool:
    """Return True or False, Python's or numpy's; refuse all else, even 0 and 1.

    >>> flag(1, "diagonal")
    Traceback (most recent call last):
    ...
    lastlayer.errors.ArgumentError: diagonal must be True or False, got an int
    """
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise ArgumentError(f"{name} must be True or False, got {kind_of(value)}")


def choice(value: Any, among: Sequence[str], name: str) -> str:
    """Return ``value``, which must be one of a few words.

    >>> choice("flat", ("uniform", "empirical"), "prior")
    Traceback (most recent call last):
    ...
    lastlayer.errors.OptionError: prior must be 'uniform' or 'empirical', got 'flat'
    """
    if isinstance(value, str) and value in among:
        return value
    words = " or ".join(f"'{word}'" for word in among)
    if isinstance(value, str):
        raise OptionError(f"{name} must be {words}, got '{short(value)}'")
    raise ArgumentError(f"{name} must be {words}, got {kind_of(value)}")


def a_path(value: Any, name: str = "path") -> Path:
    """Return a path of text or a path object; refuse all else, and names that no file can have."""
    wanted = "a str or a path object"
    expect(value, (str, os.PathLike), name, wanted)
    try:
        text = os.fsdecode(value)
    except Exception:  # a path object may raise anything
        raise ArgumentError(f"{name} must be {wanted}, got {kind_of(value)}") from None
    if not text or "\0" in text or not _can_be_encoded(text):
        raise OptionError(f"{name} must name a file or folder, got {text!r}")
    if max(len(os.fsencode(part)) for part in text.split("/")) > LONGEST_NAME:
        raise OptionError(
            f"{name} must have file names of at most {LONGEST_NAME} bytes, got {short(text)}"
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
