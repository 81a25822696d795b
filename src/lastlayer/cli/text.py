"""What verbs print: tables as plain text, on any screen, and phrases that several of them use."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lastlayer.core.names import joined

if TYPE_CHECKING:
    from lastlayer.data.features import Features, TrainingFeatures
    from lastlayer.heads import Calibration


def columns(rows: Iterable[Sequence[str]], indent: str = "") -> str:
    """Align the columns of a table; the last one is left as it is.

    >>> print(columns([("head", "accuracy"), ("slda", "66.9 %")]))
    head  accuracy
    slda  66.9 %
    """
    table = [list(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(indent + line.rstrip() for line in lines)


def spread(mean: float | None, deviation: float | None) -> str:
    """Return a share in percent with its deviation, unless that is 0.00; empty without a share.

    >>> spread(0.669, 0.00021), spread(0.669, 0), spread(0.669, None)
    ('66.90 ± 0.02', '66.90', '66.90')
    """
    if mean is None:
        return ""
    around = 100 * (deviation or 0.0)
    return f"{100 * mean:5.2f}" + (f" ± {around:.2f}" if round(around, 2) else "")


def called(scenario: object, by: str | None) -> str:
    """Return a scenario as it was asked for: ``--by`` says no more than what makes the tasks.

    >>> called("incremental:5", None), called("mixed:month", "month")
    ('incremental:5', 'a task for each month')
    """
    return str(scenario) if by is None else f"a task for each {by}"


def sizes(data: "Features | TrainingFeatures") -> str:
    """Return how many rows of how many features there are.

    >>> import lastlayer as ll
    >>> sizes(ll.load_features("cifar10"))
    '50,000 training and 10,000 test rows of 64 features'
    """
    splits = {"training": data.train, "validation": getattr(data, "validation", None)}
    splits["test"] = data.test
    there = [f"{len(rows):,} {name}" for name, rows in splits.items() if rows is not None]
    rows = joined(there) if len(there) > 1 else f"{len(data.train):,}"
    return f"{rows} rows of {data.train.in_features:,} features"


def count(n: int, noun: str) -> str:
    """Return a number of things in words.

    >>> count(1, "order"), count(8, "order"), count(2, "class")
    ('1 order', '8 orders', '2 classes')
    """
    return f"{n} {noun}" if n == 1 else f"{n} {noun}{'es' if noun.endswith('s') else 's'}"


def describe_calibration(found: "Calibration") -> str:
    """Return one line on what a head was calibrated with, and whether that still holds."""
    if found.stale:
        return "calibration out of date, since the head has changed: rerun lastlayer calibrate"
    if found.living is not None:
        traces = "; it may hold traces of forgotten rows" if found.living.forgot else ""
        return (
            f"calibrated with {found.rows} rows, and living: it followed {found.living.rows} more; "
            f"temperature {found.temperature:.3g}; --unknown may be 0.01, 0.05 or 0.1{traces}"
        )
    return (
        f"calibrated with {found.rows} rows: temperature {found.temperature:.3g}; with these, "
        f"--unknown must be at least {1 / (found.rows + 1):.2g}"
    )
