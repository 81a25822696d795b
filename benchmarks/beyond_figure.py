"""Draw the README's figure: the paper's heads and those beyond it, beside a retrained linear layer.

python -m benchmarks.beyond_figure [--out docs/figures/beyond.svg]

It reads results/paper/tables/accuracy.csv and results/beyond/accuracy.csv.
"""

import argparse
from pathlib import Path

import altair as alt
import polars as pl
import vl_convert

from lastlayer.catalogue.map_widths import default_map, mapped_width
from lastlayer.report.drawing import ROOM
from lastlayer.report.looks import look_of

TOP = Path(__file__).parents[1]
PAPER_TABLE = TOP / "results" / "paper" / "tables" / "accuracy.csv"
BEYOND_TABLE = TOP / "results" / "beyond" / "accuracy.csv"
STREAMS = {
    "cifar10": ("cifar10", "CIFAR10: new classes, 5 tasks"),
    "cifar100_lifelong": ("cifar100 coarse, lifelong", "CIFAR100: new surroundings, 5 tasks"),
}
PAPER = ("linear", "weight_norm", "weight_norm+single", "cosine+single", "mean", "slda")
BEYOND = ("qda", "sampled_linear", "random_slda", "random_ridge")
MAPPED = ("random_slda", "random_ridge")


def rows(paper: Path, beyond: Path) -> pl.DataFrame:
    """Return stream, head, kind and accuracy in %, and the reference of each stream."""
    theirs, ours = pl.read_csv(paper), pl.read_csv(beyond)
    found = []
    for name, (data, title) in STREAMS.items():
        features = f"{data.split()[0]}/resnet20-cifar100"
        there = theirs.filter(scenario=name, preset="paper", features=features)
        for head in PAPER:
            found.append((title, head, "the paper's", there.filter(name=head)["mean"].item()))
        mine = ours.filter(data=data)
        for head in BEYOND:
            one = mine.filter(head=head)
            if head in MAPPED:  # behind their default map of 64 features
                one = one.filter(map=default_map(64, mapped_width(64)), width=mapped_width(64))
            found.append((title, head, "beyond it", one["accuracy"].mean()))
        bound = mine.filter(pl.col("head") == "reference", pl.col("width") == 0)["accuracy"].item()
        found.append((title, "", "retrained", bound))
    return pl.DataFrame(found, ["stream", "head", "kind", "accuracy"], orient="row")


def chart(table: pl.DataFrame) -> alt.HConcatChart:
    """Draw a bar for each head, and a line where the retrained linear layer is."""
    parts = []
    for (stream,), part in table.group_by("stream", maintain_order=True):
        heads = part.filter(pl.col("head") != "")
        order = heads.sort("accuracy", descending=True)["head"].to_list()
        colours = [look_of(head).colour for head in order]
        bars = alt.Chart(heads).mark_bar().encode(
            x=alt.X("accuracy:Q", title="accuracy in %", scale=alt.Scale(domain=[0, 80])),
            y=alt.Y("head:N", sort=order, title=None),
            color=alt.Color("head:N", scale=alt.Scale(domain=order, range=colours), legend=None),
            opacity=alt.Opacity(
                "kind:N",
                scale=alt.Scale(domain=["beyond it", "the paper's"], range=[1.0, 0.45]),
                legend=alt.Legend(title=None, orient="bottom"),
            ),
        )  # fmt: skip
        words = alt.Chart(heads).encode(
            x=alt.value(4), y=alt.Y("head:N", sort=order), text=alt.Text("accuracy:Q", format=".1f")
        )  # fmt: skip
        ground = words.mark_text(align="left", stroke="white", strokeWidth=4)  # seen on dark bars
        words = alt.layer(ground, words.mark_text(align="left"))
        line = alt.Chart(part.filter(head="")).mark_rule(strokeDash=[4, 3]).encode(x="accuracy:Q")
        parts.append((bars + words + line).properties(title=str(stream), width=300))
    return alt.hconcat(*parts, padding=ROOM).resolve_scale(color="independent")


def svg(paper: Path = PAPER_TABLE, beyond: Path = BEYOND_TABLE) -> str:
    """Return the figure."""
    return str(vl_convert.vegalite_to_svg(chart(rows(paper, beyond)).to_json())) + "\n"


def main() -> None:
    """Write the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper", type=Path, default=PAPER_TABLE)
    parser.add_argument("--beyond", type=Path, default=BEYOND_TABLE)
    parser.add_argument("--out", type=Path, default=TOP / "docs" / "figures" / "beyond.svg")
    asked = parser.parse_args()
    asked.out.write_text(svg(asked.paper, asked.beyond), encoding="utf-8")


if __name__ == "__main__":
    main()
