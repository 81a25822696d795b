"""What a comparison says: a ranking, how far it is from the best possible, and one sentence."""

from dataclasses import dataclass
from typing import cast

import polars as pl

from lastlayer.arguments import expect
from lastlayer.errors import OptionError
from lastlayer.results.tables import deviation, head_name, thrift


@dataclass(frozen=True)
class Bound:
    """The best that any head reaches when it has everything at once."""

    head: str
    accuracy: float


def rank(table: pl.DataFrame) -> pl.DataFrame:
    """Rank heads by their final accuracy, best first; those that diverged come last.

    Of equally good ones the thriftiest comes first.

    Args:
        table: what ``compare`` gives.

    Returns:
        Columns head (with its mask), accuracy and deviation over the orders, and diverged: in how
        many orders it did.

    >>> table = pl.DataFrame({"head": "mean", "mask": "none", "order": [0, 0, 1, 1],
    ...                       "task": 0, "epoch": [0, 1, 0, 1], "accuracy": [None, 0.5, None, 1.0]})
    >>> rank(table).rows()
    [('mean', 0.75, 0.25, 0)]
    """
    _check(table, "table", ("head", "mask", "order", "task", "epoch", "accuracy"))
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


def advise(ranking: pl.DataFrame, bound: Bound | None = None) -> str:
    """Say in one sentence which head to use, and what an ordinary linear layer would do.

    Args:
        ranking: what ``rank`` gives.
        bound: what ``upper_bound`` gives; None: there is none to compare with.
    """
    _check(ranking, "ranking", ("head", "accuracy"))
    expect(bound, (Bound, type(None)), "bound", "a Bound")
    best = ranking.row(0, named=True)
    if best["accuracy"] is None:
        return "No head has learned anything: use a smaller learning rate."
    level = ranking.filter(accuracy=best["accuracy"])["head"].to_list()[1:]
    equal = f" ({', '.join(level)} {'is' if len(level) == 1 else 'are'} as good)" if level else ""
    sentence = f"Use {best['head']}{equal}: it ends at {_percent(best['accuracy'])}"
    if bound is not None:
        gap = 100 * (bound.accuracy - best["accuracy"])
        sentence += (
            f", {_beside(gap)} {bound.head} trained on everything at once "
            f"({_percent(bound.accuracy)})"
        )
    linear = ranking.filter(pl.col("head") == "linear")
    if linear.is_empty() or best["head"] == "linear":
        return f"{sentence}."
    return f"{sentence}; an ordinary linear layer {_fate(linear.row(0, named=True), best)}."


def _check(table: object, name: str, columns: tuple[str, ...]) -> None:
    """Refuse what is no table of these columns, or an empty one."""
    expect(table, pl.DataFrame, name, "a polars table")
    found = cast(pl.DataFrame, table)
    missing = [column for column in columns if column not in found.columns]
    if missing or not found.height:
        what = f"no column {', '.join(missing)}" if missing else "no row"
        raise OptionError(f"expected a {name} with the columns {', '.join(columns)}, got {what}")


def _beside(gap: float) -> str:
    points = f"{abs(gap):.1f}"
    if points == "0.0":
        return "as good as"
    return f"{points} points {'below' if gap > 0 else 'above'}"


def _fate(linear: dict[str, float | None], best: dict[str, float | None]) -> str:
    reached, top = linear["accuracy"], best["accuracy"]
    if reached is None or top is None:
        return "diverges"
    return f"{'falls to' if top - reached > 0.05 else 'reaches'} {_percent(reached)}"


def _percent(accuracy: float) -> str:
    return f"{100 * accuracy:.1f} %"
