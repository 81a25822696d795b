"""The tables of docs/reproduction.md: every published CIFAR number, and ours beside it.

python -m benchmarks.reproduction_tables        # prints them, made from results/paper
python -m benchmarks.reproduction_tables --put  # puts them into the page
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / "paper" / "tables" / "published.csv"
PAGE = ROOT / "docs" / "reproduction.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"
MARK = {"agrees": "", "differs": " **≠**", "wide": " (wide)"}


def tables() -> str:
    """Give all tables as Markdown."""
    table = pl.read_csv(TABLE, infer_schema_length=None)
    groups = table.group_by("experiment", "features", "label", maintain_order=True)
    parts = [
        _summary(table),
        "### Two backbones in one number\n",
        "\n".join(_mixtures(table)) + "\n",
    ]
    for (experiment, features, label), group in groups:
        across = "subset" if experiment == "subset" else "lr"
        parts.append(f"### {experiment}: `{features}`, label {label}\n")
        parts.append("\n".join(_rows(group, across)) + "\n")
    return "\n".join(parts)


def agreement(table: pl.DataFrame) -> pl.DataFrame:
    """Count what agrees in each group, and give the mean difference of what can be judged."""
    judged = pl.col("verdict").is_in(["agrees", "differs"])
    return table.group_by("experiment", "features", "label", maintain_order=True).agg(
        pl.len().alias("published"),
        judged.sum().alias("judged"),
        (pl.col("verdict") == "agrees").sum().alias("agree"),
        pl.col("difference").filter(judged).mean().alias("bias"),
        pl.col("difference")
        .filter(judged & (pl.col("mask") == "none"))
        .mean()
        .alias("bias_unmasked"),
    )


def _summary(table: pl.DataFrame) -> str:
    lines = [
        "| experiment | features | label | published | comparable | agree | mean difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in agreement(table).iter_rows(named=True):
        counts = f"{row['published']} | {row['judged']} | {row['agree']}"
        names = f"{row['experiment']} | `{row['features']}` | {row['label']}"
        lines.append(f"| {names} | {counts} | {row['bias']:+.2f} |")
    whole = agreement(table).select(pl.col("published", "judged", "agree").sum()).row(0)
    lines.append(f"| **all** | | | {' | '.join(map(str, whole))} | |\n")
    return "\n".join(lines)


def _mixtures(table: pl.DataFrame) -> Iterator[str]:
    """Show that wide numbers are those of a few runs on the other backbone among eight."""
    other = table.filter(features="cifar10/resnet20-cifar10")
    means = {(row["head"], row["lr"]): row["mean"] for row in other.iter_rows(named=True)}
    yield "| head | rate | ours | on the CIFAR10 backbone | runs of it | gives | published |"
    yield "|---|---|---|---|---|---|---|"
    wide = table.filter(
        experiment="preliminary", features="cifar10/resnet20-cifar100", verdict="wide"
    )
    for row in wide.iter_rows(named=True):
        far, near = means[row["head"], row["lr"]], row["mean"]
        mixed = [np.array([far] * k + [near] * (8 - k)) for k in range(9)]
        published = row["published_mean"], row["published_std"]
        k, best = min(enumerate(mixed), key=lambda m: np.hypot(*(_spread(m[1]) - published)))
        mean, deviation = _spread(best)
        numbers = f"{near:.2f} | {far:.2f} | {k} of 8 | {mean:.2f}±{deviation:.2f}"
        theirs = "{:.2f}±{:.2f}".format(*published)
        yield f"| {row['head']} | {row['lr']:g} | {numbers} | {theirs} |"


def _spread(values: np.ndarray) -> np.ndarray:
    return np.array([values.mean(), values.std()])


def _rows(group: pl.DataFrame, across: str) -> Iterator[str]:
    """Give a table with a row for each head, and sizes or learning rates across."""
    names = group[across].unique(maintain_order=True).to_list()
    yield f"| head | {' | '.join(_title(name, across) for name in names)} |"
    yield "|---|" + "---|" * len(names)
    for (head, mask), rows in group.group_by("head", "mask", maintain_order=True):
        name = head if mask == "none" else f"{head}+{mask}"
        cells = {row[across]: _cell(row) for row in rows.iter_rows(named=True)}
        yield f"| {name} | {' | '.join(cells.get(name, '') for name in names)} |"


def _title(name: float | int | None, across: str) -> str:
    if name is None:
        return "all data" if across == "subset" else "no rate"
    return f"{name} samples" if across == "subset" else f"rate {name:g}"


def _cell(row: dict[str, float]) -> str:
    ours = f"{row['mean']:.2f}±{row['deviation']:.2f}"
    theirs = f"{row['published_mean']:.2f}±{row['published_std']:.2f}"
    return f"{ours} / {theirs}{MARK[row['verdict']]}"


def page() -> str:
    """Give the page with the tables as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    if "--put" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(tables())
