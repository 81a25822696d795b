"""What each head reaches on a stream, and what it keeps: cost beside accuracy, ties named."""

from dataclasses import dataclass
from math import sqrt

import polars as pl

from lastlayer.catalogue.head_cards import HEADS, size_in_words
from lastlayer.report.charts import bars
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, by_stream
from lastlayer.report.table import Cell, Row, Table, number, words
from lastlayer.report.topics.accuracy import ACCURACY
from lastlayer.report.topics.runs import SETS
from lastlayer.results.tables import thrift

SURE = 1.96  # standard errors to each side of a 95 % interval


@dataclass(frozen=True)
class Standing:
    """How a head stands on a stream."""

    row: Row  # of the sheet "accuracy"
    reach: float  # half of the 95 % interval of its accuracy, in points
    behind: float  # the best head, in points
    level: bool  # with the best head, or not told apart from it
    size: int | None  # bytes that it keeps; None where no card or no table says it

    @property
    def name(self) -> str:
        """The head as it is typed."""
        return str(self.row["name"])

    @property
    def mean(self) -> float:
        """Its final accuracy in percent."""
        return float(self.row["mean"])

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the interval of its accuracy: never below 0 nor above 100."""
        return max(0.0, self.mean - self.reach), min(100.0, self.mean + self.reach)


def standings(part: pl.DataFrame, sets: pl.DataFrame) -> list[Standing]:
    """Rank the heads of a stream, the best first, of equally good ones the thriftiest.

    ``part`` holds rows of the sheet "accuracy", ``sets`` is the sheet "data". The error of a mean
    has two sources: the order of the tasks, and which samples are in the test set. Heads are taken
    to err independently, which makes their difference less certain than it is (they share the test
    set), so that a tie may be named that more samples would break, and never the other way round.
    """
    known = part.drop_nulls("mean").sort(
        pl.col("mean"), thrift(), descending=[True, False], maintain_order=True
    )
    rows = known.to_dicts()
    if not rows:
        return []
    about = next(sets.filter(features=rows[0]["features"]).iter_rows(named=True), {})
    errors = [_variance(row, about.get("test_samples")) for row in rows]
    made = []
    for row, error in zip(rows, errors, strict=True):
        behind = rows[0]["mean"] - row["mean"]
        level = behind <= SURE * sqrt(error + errors[0])
        size = _size(row, about)
        made.append(Standing(row, SURE * sqrt(error), behind, level, size))
    return made


def _variance(row: Row, test_samples: int | None) -> float:
    """Return the squared standard error of a mean, in points."""
    share = row["mean"] / 100
    drawn = 1e4 * share * (1 - share) / test_samples if test_samples else 0.0
    # A deviation of the population of n runs stands for that of n − 1.
    orders = (row["deviation"] or 0.0) ** 2 / (row["runs"] - 1) if row["runs"] > 1 else 0.0
    return float(drawn + orders)


def _size(row: Row, about: Row) -> int | None:
    card = HEADS.get(row["head"])
    if card is None or not about:
        return None
    return card.size(about["in_features"], row["n_classes"], about["train_samples"])


def section(tables: Tables) -> Section | None:
    """Show accuracy with its error, ties, and what a head keeps, stream by stream."""
    parts = [
        (title, standings(part, tables["data"])) for title, part in by_stream(tables["accuracy"])
    ]
    parts = [(title, found) for title, found in parts if len(found) > 1]
    if not parts:
        return None
    figures = [Figure(("ranking", title), title, *_chart(found)) for title, found in parts]
    text = (
        "A head that the test set cannot tell from the best one is level with it: their difference "
        "is within the 95 % interval that the number of test samples and the orders of the tasks "
        "leave. Of level heads the one that keeps least is the thriftiest choice."
    )
    rate = (
        "Heads trained by gradient learned at one rate, named under “Accuracy while learning”. "
        "lastlayer advise tunes it to the stream, so its numbers for them can be far from these."
    )
    rated = any(each.row["lr"] is not None for _, found in parts for each in found)
    caption = (
        "Final accuracy, best first, and what each head keeps after the stream. Lines are 95 % "
        "intervals."
    )
    shown = [_table(title, found) for title, found in parts]
    title = "What each head reaches and keeps"
    return Section("ranking", title, [text, *[rate][:rated]], [Panel(caption, figures)], shown)


TOPIC = Topic(section, needs=[ACCURACY], also=[SETS])


def _label(standing: Standing) -> str:
    size = "" if standing.size is None else f", {size_in_words(standing.size)}"
    return f"{standing.name}{size}"


def _chart(found: list[Standing]) -> Plot:
    labels = [_label(standing) for standing in found]
    rows = pl.DataFrame(
        [
            standing.row | {"label": label, "reach": standing.reach}
            for standing, label in zip(found, labels, strict=True)
        ],
        infer_schema_length=None,
    )
    return bars(rows, "label", labels, height=22 * len(found) + 20, reach="reach")


def _table(title: str, found: list[Standing]) -> Table:
    header = ("head", "final accuracy, %", "95 % interval", "points behind", "verdict", "keeps",
              "data rows", "passes over the data")  # fmt: skip
    rows = [_cells(standing, first=place == 0) for place, standing in enumerate(found)]
    caption = f"{title}: what each head reaches, and what it costs."
    return Table(("ranking", title), caption, header, rows)


def _cells(standing: Standing, first: bool) -> list[Cell]:
    low, high = standing.interval
    verdict = "best" if first else "level with the best" if standing.level else "behind"
    card = HEADS.get(standing.row["head"])
    size = standing.size
    kept = Cell("") if size is None else Cell(size_in_words(size), size)
    rows = "" if card is None else "kept" if card.abilities.keeps_samples else "none kept"
    passes = "" if card is None else "several" if card.by_gradient else "one"
    return [
        words(standing.name),
        number(standing.mean),
        Cell(f"{low:.1f} to {high:.1f}", low) if standing.reach else Cell(""),
        number(standing.behind, digits=1),
        words(verdict),
        kept,
        words(rows),
        words(passes),
    ]
