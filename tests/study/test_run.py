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
        {"head": "cosine"},
        {"mask": "group"},
        {"preset": "exact"},
        {"lr": 0.01},
        {"order": 4},
        {"seed": 4},
        {"subset": 200},
        {"subset": None},
    ],
)
def test_its_name_says_all(other: dict[str, object]) -> None:
    assert replace(RUN, **other).digest("abc") != RUN.digest("abc")


def test_the_data_count_by_content() -> None:
    assert replace(RUN, features="a copy").digest("abc") == RUN.digest("abc")
    assert RUN.digest("abd") != RUN.digest("abc")


def test_its_name_stays() -> None:
    """A stored study finds its runs by name: a change here must come with another METHOD."""
    assert RUN.digest("abc") == "d1609caaa6741a9bf60d40844ec8747855f60dc5defc329db8552130fd99048a"


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
        ({"head": "mean", "mask": "single", "lr": None}, OptionError, "no mask for 'mean'"),
        ({"head": "mean", "mask": "none"}, OptionError, "no learning rate for 'mean'"),
        ({"lr": -1.0}, OptionError, "learning rate above 0"),
        ({"lr": float("nan")}, OptionError, "learning rate above 0"),
        ({"preset": "approximate"}, OptionError, "expected preset"),
        ({"subset": 0}, OptionError, "expected subset from 1 to 10000000, got 0"),
        ({"scenario": ScenarioSpec("cifar10")}, OptionError, "of the scenario 'iid'"),
        ({"order": -1}, OptionError, "expected order from 0 to"),
    ],
)
def test_nonsense_is_refused_at_once(
    change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        replace(RUN, **change)
