"""What is asked of a watch: which rate of false alarms, and how much worse a head may become."""

from dataclasses import replace
from typing import Any

from lastlayer.core.checks import real
from lastlayer.errors import OptionError
from lastlayer.live.watch.betting import Promise, at_most, every
from lastlayer.live.watch.rules import QUESTIONS
from lastlayer.live.watch.verdicts import percent

CALIBRATION_FAILS = 0.01  # the chance that limits are too low, where rows between alarms are asked
DEFAULT: dict[str, Any] = {"false_alarms": 0.05, "rows": None, "tolerance": 0.0}


def asked_for(
    false_alarms: float | None, rows: float | None, tolerance: float | None
) -> dict[str, Any]:
    """Check what is asked for."""
    if false_alarms is not None and rows is not None:
        raise OptionError("a watch promises false_alarms or rows, not both: leave one out")
    if false_alarms is not None and not 0 < real(false_alarms, "false_alarms") < 1:
        raise OptionError(f"false_alarms must be above 0 and below 1, got {false_alarms}")
    if rows is not None and not real(rows, "rows") >= 1:
        raise OptionError(f"rows must be at least 1, got {rows}")
    if tolerance is not None and not 0 <= real(tolerance, "tolerance") < 1:
        raise OptionError(f"tolerance must be at least 0 and below 1, got {tolerance}")
    given = {"false_alarms": false_alarms, "rows": rows, "tolerance": tolerance}
    return {k: None if v is None else float(v) for k, v in given.items()}


def promise_of(settings: dict[str, Any], calibrations: int) -> Promise:
    """Return a third of the promise, for one of three questions."""
    if settings["rows"] is None:
        made = at_most(settings["false_alarms"] / len(QUESTIONS))
    else:
        # Squared, since the wealth that counts is itself drawn with the calibration (decision 19).
        rows = settings["rows"] * len(QUESTIONS) / (1 - CALIBRATION_FAILS) ** 2
        made = every(rows, CALIBRATION_FAILS / len(QUESTIONS))
    part = 0.5**calibrations
    return replace(made, delta=made.delta * part, part=part)


def in_words(settings: dict[str, Any]) -> str:
    """Return what was asked for, as it is written in Python."""
    return ", ".join(f"{name}={value:g}" for name, value in settings.items() if value is not None)


def promised(settings: dict[str, Any]) -> str:
    """Return what is promised, in one sentence."""
    rows, chance = settings["rows"], settings["false_alarms"]
    if rows is not None:
        return f"Promised: at least {rows:,.0f} rows between false alarms on average."
    return f"Promised: the chance that there is ever a false alarm is at most {percent(chance)}."
