"""The tables of docs/reproduction.md and of results/paper/comparison.md, made from results/paper.

python -m benchmarks.reproduction_tables        # prints those of the page
python -m benchmarks.reproduction_tables --put  # writes both

The page has the verdicts and what agrees; the other file has every comparison and every number.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from lastlayer.catalogue.head_cards import CODES
from lastlayer.paper.claims import MARKS, claim_rows, judge_replay
from lastlayer.paper.published_numbers import ALL_DATA, COARSE, MASKED, SUBSETS
from lastlayer.paper.reproduction import count_agreement

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "results" / "paper" / "tables" / "published.csv"
CLAIMS = TABLE.with_name("claims.csv")
REPLAY = ROOT / "results" / "replay"  # each CSV in it holds networks trained end to end
PAGE = ROOT / "docs" / "reproduction.md"
COMPARISON = ROOT / "results" / "paper" / "comparison.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"
MARK = {"agrees": "", "differs": " **≠**", "wide": " (wide)"}


def tables() -> str:
    """Return the tables of the page as Markdown."""
    table = pl.read_csv(TABLE, infer_schema_length=None)
    return "\n".join(
        [
            "### The conclusions\n",
            "\n".join(_verdicts()) + "\n",
            "### What agrees\n",
            _summary(table),
        ]
    )


def comparison() -> str:
    """Return every comparison and every published number beside ours, as a file of its own."""
    table = pl.read_csv(TABLE, infer_schema_length=None)
    groups = table.group_by("experiment", "features", "label", maintain_order=True)
    parts = [
        "# The paper's conclusions and numbers, and ours\n",
        "    python -m benchmarks.reproduction_tables --put\n",
        "Made from tables/. Numbers are ours / published: accuracy in %, mean ± deviation over 8",
        "seeds. **≠** marks those that do not agree, (wide) those whose published deviation is 5",
        "or more, which rules out a comparison. [What this means](../../docs/reproduction.md).\n",
        "## The conclusions\n",
        "\n".join(_claims()) + "\n",
        "## Which code, block by block\n",
        "\n".join(_blocks(table)) + "\n",
        "## Two backbones in one number\n",
        "\n".join(_mixtures(table)) + "\n",
    ]
    for (experiment, features, label), group in groups:
        across = "subset" if experiment == "subset" else "lr"
        parts.append(f"## {experiment}: `{features}`, label {label}\n")
        parts.append("\n".join(_rows(group, across)) + "\n")
    return "\n".join(parts)


def agreement(table: pl.DataFrame) -> pl.DataFrame:
    """Count what agrees in each group, and return the mean difference of what can be judged.

    A number that the paper prints twice counts where it is printed first.
    """
    table = table.filter(~pl.col("again"))
    judged = pl.col("verdict").is_in(["agrees", "differs"])
    return table.group_by("experiment", "features", "label", maintain_order=True).agg(
        pl.len().alias("published"),
        judged.sum().alias("judged"),
        (pl.col("verdict") == "agrees").sum().alias("agree"),
        *((pl.col(f"{code}_verdict") == "agrees").sum().alias(code) for code in CODES),
        pl.col("difference").filter(judged).mean().alias("bias"),
        pl.col("difference")
        .filter(judged & (pl.col("mask") == "none"))
        .mean()
        .alias("bias_unmasked"),
    )


def _summary(table: pl.DataFrame) -> str:
    alone = " | ".join(f"{code}'s code alone" for code in CODES)
    lines = [
        "| experiment | features | label | published | comparable | agree | "
        f"{alone} | mean difference |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in agreement(table).iter_rows(named=True):
        columns = ("published", "judged", "agree", *CODES)
        counts = " | ".join(str(row[name]) for name in columns)
        names = f"{row['experiment']} | `{row['features']}` | {row['label']}"
        lines.append(f"| {names} | {counts} | {row['bias']:+.2f} |")
    whole = agreement(table).select(pl.col("published", "judged", "agree", *CODES).sum()).row(0)
    counts = count_agreement(table)
    if whole[1:] != (counts["block"][1], *(counts[name][0] for name in ("block", *CODES))):
        raise ValueError("the sums are not what the report counts")
    lines.append(f"| **all** | | | {' | '.join(map(str, whole))} | |\n")
    return "\n".join(lines)


def _blocks(table: pl.DataFrame) -> Iterator[str]:
    """Say which code each block stands for, and what agrees with it."""
    yield "| block | code | why | comparable | agree |"
    yield "|---|---|---|---|---|"
    once = table.filter(~pl.col("again"))
    for block in (ALL_DATA, SUBSETS, MASKED, COARSE):
        mine = once.filter(block=block.name)
        agree = mine.filter(verdict="agrees").height
        of = agree + mine.filter(verdict="differs").height
        yield f"| {block.name} | {block.code} | {block.why} | {of} | {agree} |"


def replay_claims() -> pl.DataFrame:
    """Judge the tenth conclusion by the committed networks."""
    files = sorted(path for path in REPLAY.glob("*.csv"))
    networks = [pl.read_csv(path, infer_schema_length=None) for path in files]
    return claim_rows(judge_replay(pl.concat(networks, how="diagonal_relaxed")))


def all_claims() -> pl.DataFrame:
    """Return the verdicts of the committed study, with those of the committed networks."""
    table = pl.read_csv(CLAIMS, infer_schema_length=None)
    replay = replay_claims()
    place = replay["number"][0]
    known = table.filter(pl.col("number").is_null() | (pl.col("number") != place))
    return pl.concat([known, replay]).sort("number", nulls_last=True, maintain_order=True)


def _verdicts() -> Iterator[str]:
    """Write a line for each conclusion; where all settings agree, their verdict once."""
    yield "| no. | the paper concludes | verdict |"
    yield "|---|---|---|"
    counted = all_claims().filter("counts").drop_nulls("numbers")
    for (number, claim), part in counted.group_by("number", "claim", maintain_order=True):
        marked = [f"{MARKS[verdict]} {verdict}" for verdict in part["verdict"]]
        told = [f"{row}: {verdict}" for row, verdict in zip(part["setting"], marked, strict=True)]
        verdict = marked[0] if len(set(marked)) == 1 else "; ".join(told)
        yield f"| {number or 'check'} | {claim} | {verdict} |"


def _claims() -> Iterator[str]:
    """Write the verdicts, and what decides each."""
    both = all_claims()
    yield "| no. | the paper concludes | verdict, and what decides | beside it |"
    yield "|---|---|---|---|"
    for (number, claim), part in both.group_by("number", "claim", maintain_order=True):
        counted, others = part.filter("counts"), part.filter(~pl.col("counts"))
        told = "<br>".join(
            f"{row['setting']}: **{MARKS[row['verdict']]} {row['verdict']}**; {row['numbers']}"
            for row in counted.drop_nulls("numbers").iter_rows(named=True)
        )
        beside = "<br>".join(
            f"{row['setting']}: {row['verdict']}" for row in others.iter_rows(named=True)
        )
        yield f"| {number or 'check'} | {claim} | {told} | {beside} |"


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
    """Write a table with a row for each head, and sizes or learning rates across."""
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
    """Return the page with the tables as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


if __name__ == "__main__":
    if "--put" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
        COMPARISON.write_text(comparison(), encoding="utf-8")
    else:
        print(tables())
