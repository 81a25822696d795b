"""A run: its name changes with everything that decides its numbers, and with nothing else."""

from dataclasses import replace

import pytest

from lastlayer.errors import OptionError, UnknownNameError
from lastlayer.study import Run, ScenarioSpec

RUN = Run("cifar10", ScenarioSpec("iid"), "linear", "single", "paper", 0.1, 3, 3, 100)


@pytest.mark.parametrize(
    "other",
    [
        {"scenario": ScenarioSpec("iid", label="coarse")},
        {"head": "cosine", "start": None},
        {"mask": "group"},
        {"preset": "exact", "start": None},
        {"lr": 0.01},
        {"order": 4},
        {"seed": 4},
        {"subset": 200},
        {"subset": None},
        {"start": "normal"},
        {"batch_size": 256},
        {"head": "weight_norm", "start": None, "gain": "frozen"},
    ],
)
def test_its_name_says_all(other: dict[str, object]) -> None:
    assert replace(RUN, **other).digest("abc") != RUN.digest("abc")


def test_the_data_count_by_content() -> None:
    assert replace(RUN, features="a copy").digest("abc") == RUN.digest("abc")
    assert RUN.digest("abd") != RUN.digest("abc")


def test_its_name_stays() -> None:
    """A stored study finds its runs by name: a change here must come with another method.

    Version 0.1 had no start, gain or batch size to choose; what it made is found by its old name.
    """
    old = replace(RUN, start="normal").digest("abc")
    assert old == "d1609caaa6741a9bf60d40844ec8747855f60dc5defc329db8552130fd99048a"
    group = replace(RUN, mask="group").digest("abc")
    assert group == "a651f895e417782d2a6c6be4f09bb701e6dd800839328d92ad7e4e96e3bd8552"


def test_start_gain_and_batch_are_written_out() -> None:
    assert (RUN.start, RUN.gain, RUN.batch_size) == ("uniform", None, 264)
    assert replace(RUN, start=None, batch_size=None) == RUN
    norm = Run("x", ScenarioSpec("iid"), "weight_norm", preset="paper", batch_size=256)
    assert (norm.start, norm.gain, norm.batch_size) == (None, "unit", 256)
    assert str(norm).endswith("order=0 seed=0 batch_size=256")
    assert norm.candidate == "weight_norm at 0.1, batch_size 256"
    assert Run("x", ScenarioSpec("iid"), "linear").start is None  # exact rows start at zero
    assert Run("x", ScenarioSpec("iid"), "slda", preset="paper").batch_size is None


def test_the_default_rate_is_written_out() -> None:
    left, given = (Run("x", ScenarioSpec("iid"), "linear", lr=lr) for lr in (None, 0.01))
    assert left == given
    assert left.digest("") == given.digest("")
    assert Run("x", ScenarioSpec("iid"), "slda").lr is None


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"head": "linaer"}, UnknownNameError, "did you mean 'linear'"),
        ({"mask": "both"}, UnknownNameError, "unknown mask"),
        ({"head": "mean", "mask": "single", "lr": None}, OptionError, "'mean' takes no mask"),
        ({"head": "mean", "mask": "none"}, OptionError, "'mean' takes no learning rate"),
        ({"lr": -1.0}, OptionError, "must be above 0"),
        ({"lr": float("nan")}, OptionError, "must be above 0"),
        ({"preset": "approximate"}, OptionError, "preset must be"),
        ({"subset": 0}, OptionError, "subset must be from 1 to 10000000, got 0"),
        (
            {"scenario": ScenarioSpec("cifar10")},
            OptionError,
            "subset goes with scenario 'iid'",
        ),
        ({"order": -1}, OptionError, "order must be from 0 to"),
        ({"start": "zero"}, UnknownNameError, "unknown start"),
        ({"gain": "frozen"}, OptionError, "'linear' takes no gain, got 'frozen'"),
        ({"preset": "exact"}, OptionError, "a start goes with preset 'paper' only"),
        ({"batch_size": 1}, OptionError, "batch_size must be from 2 to"),
        ({"batch_size": 0}, OptionError, "batch_size must be from 2 to"),
        (
            {"head": "mean", "mask": "none", "lr": None, "start": None},
            OptionError,
            "'mean' takes no batch size, got 264",
        ),
    ],
)
def test_nonsense_is_refused_at_once(
    change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        replace(RUN, **change)
