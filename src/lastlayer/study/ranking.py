"""The outcome of a comparison: a ranking, and what retraining on everything would reach."""

from dataclasses import dataclass

import polars as pl

from lastlayer.core.checks import expect
from lastlayer.errors import OptionError
from lastlayer.results.tables import deviation, head_name, thrift

COLUMNS = ("head", "mask", "order", "task", "epoch", "accuracy")  # of what ``compare`` gives


@dataclass(frozen=True)
class Bound:
    """The accuracy of a softmax regression trained on everything at once until it converged."""

    name: str
    accuracy: float  # on the test rows, 0 to 1


def rank(table: pl.DataFrame) -> pl.DataFrame:
    """Rank heads by their final accuracy, best first; those that diverged come last.

    Of equally good heads, the thriftiest comes first.

    Args:
        table: what ``compare`` gives.

    Returns:
        Columns head (with its mask), accuracy and deviation over the orders, and diverged: the
        number of orders in which it did.

    >>> table = pl.DataFrame({"head": "mean", "mask": "none", "order": [0, 0, 1, 1],
    ...                       "task": 0, "epoch": [0, 1, 0, 1], "accuracy": [None, 0.5, None, 1.0]})
    >>> rank(table).rows()
    [('mean', 0.75, 0.25, 0)]
    """
    expect(table, pl.DataFrame, "table", "a polars table")
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing or not table.height:
        what = f"no column {', '.join(missing)}" if missing else "no row"
        raise OptionError(f"table must have the columns {', '.join(COLUMNS)}, got {what}")
    final = table.sort("task", "epoch").group_by("head", "mask", "order").last()
    accuracy = pl.col("accuracy")
    return (
        final.sort("head", "mask", "order")
        .group_by(head_name(), maintain_order=True)
        .agg(
            accuracy.mean(),
            deviation(accuracy).alias("deviation"),
            accuracy.null_count().alias("diverged"),
        )
        .sort(
            "diverged", "accuracy", thrift(), descending=[False, True, False], maintain_order=True
        )
    )
