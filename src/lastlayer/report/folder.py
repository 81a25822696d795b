"""The tables of a report as CSV files: the page is made from them, and can be made again."""

from collections.abc import Collection
from pathlib import Path

import polars as pl

from lastlayer.errors import FileFormatError
from lastlayer.report.section import Tables

INTEGERS = ("runs", "runs_exact", "diverged", "n_classes", "n_tasks", "task", "epoch", "subset",
            "class", "vector", "tasks_ago", "dimension", "number", "train_samples",
            "test_samples", "in_features")  # fmt: skip
NUMBERS = ("lr", "published_lr", "mean", "deviation", "mean_exact", "deviation_exact", "difference",
           "average", "forgetting", "backward_transfer", "forward_transfer", "learned", "norm",
           "bias", "bias_change", "change", "between", "to_data", "risk", "own_angle",
           "wrong_angle", "published_mean", "published_std", "balance", "images", "lost",
           "lost_share_weights", "lost_share_interference", "lost_share_drift", "lost_to_weights",
           "lost_to_interference", "lost_to_drift")  # fmt: skip
TRUTHS = ("best", "held_out")
DIGITS = 6


def save_tables(tables: Tables, folder: Path) -> None:
    """Write each table, numbers with six digits; those of an earlier report go."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.csv"):
        if path.stem not in tables:
            path.unlink()
    for name, table in tables.items():
        rounded = table.with_columns(pl.col(pl.Float64).round_sig_figs(DIGITS))
        rounded.write_csv(folder / f"{name}.csv")


def read_tables(
    folder: Path, names: Collection[str], also: Collection[str] = ()
) -> dict[str, pl.DataFrame]:
    """Read the tables again, columns of the type they had.

    Args:
        folder: where they lie.
        names: of the tables that a page needs.
        also: of tables that there may be.
    """
    missing = [f"{name}.csv" for name in names if not (folder / f"{name}.csv").is_file()]
    if missing:
        raise FileFormatError(
            f"expected all tables of a report in {folder}, but there is no {', '.join(missing)}: "
            "another version of lastlayer wrote them; make them again from the results"
        )
    there = [name for name in also if (folder / f"{name}.csv").is_file()]
    return {name: _read(folder / f"{name}.csv") for name in (*names, *there)}


def _read(path: Path) -> pl.DataFrame:
    try:
        table = pl.read_csv(path, infer_schema=False)
        return table.with_columns(
            pl.col([n for n in INTEGERS if n in table.columns]).cast(pl.Int64),
            pl.col([n for n in NUMBERS if n in table.columns]).cast(pl.Float64),
            *(pl.col(n) == "true" for n in TRUTHS if n in table.columns),
        )
    except pl.exceptions.PolarsError as error:
        raise FileFormatError(f"expected a table of a report, got {path}: {error}") from error
