"""Tables of runs: means over seeds, the best head, and the paper's selection."""

import polars as pl
import pytest

from lastlayer.results.tables import backbones, best_heads, final_accuracy, selection

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


def test_the_selected_rate_is_the_one_with_the_largest_mean() -> None:
    table = selection(
        runs(
            ("a", "linear", "none", 0.1, 0.5),
            ("a", "linear", "none", 0.01, 0.6),
            ("a", "linear", "none", 0.01, 0.8),
            ("a", "cosine", "none", 0.1, 0.9),  # one rate only: nothing was selected
            ("a", "mean", "none", None, 0.9),
        )
    )
    (row,) = table.iter_rows(named=True)
    assert (row["features"], row["head"], row["lr"], row["tried"]) == ("a", "linear", 0.01, 2)
    assert row["mean"] == pytest.approx(0.7)


def test_the_selected_backbone_is_best_over_the_heads_that_all_were_run_with() -> None:
    table = backbones(
        runs(
            ("core50/vgg16", "linear", "none", 0.1, 0.5),
            ("core50/vgg16", "linear", "none", 0.01, 0.7),
            ("core50/vgg16", "slda", "none", None, 0.9),  # on one backbone only
            ("core50/resnet18", "linear", "none", 0.1, 0.8),
            ("cub200/resnet18", "linear", "none", 0.1, 0.4),  # one backbone: nothing to select
        )
    )
    assert table.select("dataset", "features", "mean", "heads").rows() == [
        ("core50", "core50/resnet18", 0.8, 1),
        ("core50", "core50/vgg16", 0.7, 1),
    ]
