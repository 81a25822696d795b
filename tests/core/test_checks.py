"""Arguments at the door: a wrong type is named, with what was expected."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastlayer.core.checks import a_path, kind_of, real, short, whole
from lastlayer.core.names import look_up, printable
from lastlayer.errors import ArgumentError, OptionError, UnknownNameError


class Hostile:
    """An object that raises whatever it is asked."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    def __index__(self) -> int:
        raise RuntimeError("no")

    def __fspath__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", [True, 2.0, "2", None, [2], Hostile(), np.float32(2), 2j])
def test_what_is_no_whole_number(value: object) -> None:
    with pytest.raises(ArgumentError, match="k must be an integer, got"):
        whole(value, "k")


@pytest.mark.parametrize("value", [2, np.int8(2), np.uint64(2)])
def test_whole_numbers_of_any_kind(value: Any) -> None:
    assert whole(value, "k", least=2, most=2) == 2
    for bounds in ({"least": 3}, {"most": 1}, {"least": 0, "most": 1}):
        with pytest.raises(OptionError, match=r"k must be .*, got 2"):
            whole(value, "k", **bounds)


@pytest.mark.parametrize("value", [True, "2", None, [2], Hostile(), 2j])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(ArgumentError, match="lr must be a number, got"):
        real(value, "lr")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
def test_numbers_must_be_finite(value: float) -> None:
    with pytest.raises(OptionError, match="lr must be finite"):
        real(value, "lr")


@pytest.mark.parametrize("value", [None, 3, b"a", ["a"], Hostile(), Path])
def test_what_is_no_path(value: object) -> None:
    with pytest.raises(ArgumentError, match="path must be a str or a path object, got"):
        a_path(value)


def test_a_file_name_has_the_length_that_file_systems_take() -> None:
    assert a_path("a/" + "x" * 255).name == "x" * 255
    for long in ("x" * 256, "a/" + "ü" * 128 + "/b"):
        with pytest.raises(OptionError, match="at most 255 bytes"):
            a_path(long)


@pytest.mark.parametrize("value", [None, 3, b"slda", ["slda"], {}])
def test_a_name_is_text(value: Any) -> None:
    with pytest.raises(ArgumentError, match="name must be the name of a head, got"):
        look_up(value, {"slda": 1}, "head")


def test_a_long_or_odd_name_makes_a_short_message() -> None:
    with pytest.raises(UnknownNameError) as caught:
        look_up("slda\x1b[31m\n" + "x" * 10**6, {"slda": 1}, "head")
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_any_value_fits_into_a_message() -> None:
    assert short(10**10_000) == "an int"
    assert short(Hostile()) == kind_of(Hostile()) == "a Hostile"
    assert kind_of(int) == "the type int"


@pytest.mark.parametrize("odd", ["\0", "\n", "\x1b", "\x85", "\u2028", "\u202e", "\ud800"])
def test_odd_characters_are_spelt_out(odd: str) -> None:
    name = printable(f"a{odd}b")
    assert name.startswith("a\\")
    assert name.endswith("b")
    name.encode()
    assert printable(name) == name


@pytest.mark.parametrize("name", ["Käuzchen", "猫", "a b", "👩‍🔬", "x\\n", "נקבה"])
def test_names_in_any_script_stay(name: str) -> None:
    assert printable(name) == name
