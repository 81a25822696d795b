"""Tables of runs: means over seeds, and the best head."""

import polars as pl
import pytest

from lastlayer.results.tables import best_heads, final_accuracy

COLUMNS = {
    "features": pl.String, "scenario": pl.String, "label": pl.String, "preset": pl.String,
    "subset": pl.Int64, "head": pl.String, "mask": pl.String, "lr": pl.Float64, "final": pl.Float64,
    "diverged": pl.Int64,
}  # fmt: skip


def runs(*rows: tuple[str, str, str, float | None, float | None]) -> pl.DataFrame:
    """Make runs of features, head, mask, learning rate and final accuracy, i.i.d."""
    whole = [(f, "iid/y", "y", "paper", None, h, m, lr, a, None) for f, h, m, lr, a in rows]
    return pl.DataFrame(whole, schema=COLUMNS, orient="row")


def test_mean_and_deviation_are_over_seeds() -> None:
    table = final_accuracy(runs(("a", "mean", "none", None, 0.5), ("a", "mean", "none", None, 0.7)))
    (row,) = table.iter_rows(named=True)
    assert row["mean"] == pytest.approx(0.6)
    assert row["deviation"] == pytest.approx(0.1)
    assert row["runs"] == 2
    assert row["diverged"] == 0


def test_the_best_head_is_named_with_its_mask() -> None:
    table = best_heads(
        runs(
            ("a", "cosine", "single", 0.1, 0.8),
            ("a", "slda", "none", None, 0.7),
            ("b", "linear", "none", 0.1, None),  # diverged: no best here
        )
    )
    assert table.select("features", "head", "mean").rows() == [("a", "cosine+single", 0.8)]


def test_of_equally_good_heads_the_thriftiest_is_the_best() -> None:
    equal = [("a", name, "none", None, 0.8) for name in ("knn", "mean", "slda")]
    for rows in (equal, equal[::-1]):
        assert best_heads(runs(*rows))["head"].to_list() == ["mean"]
