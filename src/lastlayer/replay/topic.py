"""Networks trained end to end with replay: what group masking is worth (Fig. 7), and drift."""

from collections.abc import Iterator
from typing import Any, Literal

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import LOSS_PARTS, after_each_task, share
from lastlayer.analysis.verdict import LEVEL, paired_difference
from lastlayer.catalogue.head_cards import full_name
from lastlayer.report.charts import DATA, POINTS, lines, sized, told
from lastlayer.report.data_names import NETWORK, cited, setting_in_words
from lastlayer.report.looks import heads_of
from lastlayer.report.section import Figure, Panel, Plot, Section, Tables, Topic, rows_of
from lastlayer.report.select import HEAD, STREAM, in_order, percent, with_names
from lastlayer.report.sheet import MEAN, Sheet, integers, numbers, rows_as, texts
from lastlayer.report.table import Table, mean_of, number, short, words
from lastlayer.results import Study

PARTS = {  # end of the columns lost_to_… and lost_share_… → the cause in words
    "weights": "changed vectors",
    "interference": "later classes",
    "drift": "drifted features",
}
COLOURS = ("#1b1b3a", "#9fa3c4", "#e3d9b0")  # of no layer; dark to light
MOVED = {
    "angle": "turned by, degrees",
    "norm": "change of norm, %",
    "along": "along its vector, % of the norm",
}


SCALES = {"angle": 1, "norm": 100, "along": 100}  # as drift is stored → degrees and percent
PLACE = texts(*STREAM, "stream", "setting") | numbers("balance") | texts(*HEAD, "name")
MOVE = PLACE | texts("measure") | integers("tasks_ago")


def replay(study: Study) -> pl.DataFrame | None:
    """Return accuracy, images and what was lost, in percent, for each network and replay balance.

    Learned is the accuracy on the classes of a task right after it, mean over tasks. What was lost
    to a cause is in percent of the test set, its share in percent of all that was lost: each is
    found network by network, and then averaged.
    """
    if study.replay.is_empty():
        return None
    runs = _networks(study)
    learned = _learned(study, runs)
    own = pl.col("digest").replace_strict(learned, default=None, return_dtype=pl.Float64)
    sizes = {name: data.n_test for name, data in study.data.items()}
    size = pl.col("features").replace_strict(sizes, default=None, return_dtype=pl.Int64)
    lost = pl.col("lost") * 100 / size
    table = runs.group_by(PLACE.keys()).agg(
        *percent("final"),
        pl.col("diverged").count().cast(pl.Int64),
        pl.col("images").cast(pl.Float64).mean(),
        own.fill_nan(None).mean().alias("learned"),
        (pl.col("forgetting") * 100).mean(),
        lost.mean(),
        *((_share(cause) * lost).mean().alias(f"lost_to_{cause}") for cause in LOSS_PARTS),
        *((pl.col(f"lost_share_{cause}") * 100).mean() for cause in LOSS_PARTS),
    )
    return in_order(table, "stream", "setting", "balance", *HEAD)


def projection_drift(study: Study) -> pl.DataFrame | None:
    """Return how far features have moved since their class was learned, over seeds."""
    if study.replay.is_empty():
        return None
    runs = _networks(study)
    arrays = {name: study.arrays(f"drift_{name}", runs) for name in SCALES}
    rows = (
        (*(run[name] for name in PLACE), measure, *point)
        for run in runs.iter_rows(named=True)
        for measure, scale in SCALES.items()
        if run["digest"] in arrays[measure]
        for point in since_learned(arrays[measure][run["digest"]] * scale)
    )
    moved = rows_as(MOVE | numbers("value"), rows)
    table = moved.group_by(MOVE.keys()).agg(percent("value", times=1))
    return in_order(table, "stream", "setting", "balance", "measure", *HEAD, "tasks_ago")


def masking_gain(study: Study) -> pl.DataFrame | None:
    """Return the points that a mask adds to a network's final accuracy, paired over seeds."""
    if study.replay.is_empty():
        return None
    runs = _networks(study).filter(pl.col("diverged").is_null())
    own = [name for name in runs.columns if name in GAINED and name != "mask"]
    plain = runs.filter(mask="none").select(*own, "seed", pl.col("final").alias("without"))
    pairs = runs.filter(pl.col("mask") != "none").join(plain, on=[*own, "seed"], nulls_equal=True)
    rows = []
    for key, part in pairs.group_by(list(GAINED)):
        found = paired_difference(*(100 * part[name].to_numpy() for name in ("final", "without")))
        rows.append((*key, found.mean, found.low, found.high, found.n))
    return in_order(rows_as(GAIN, rows), "stream", "balance", *HEAD, "epochs", "setting")


GAINED = (
    texts(*STREAM, "stream", "setting") | integers("epochs") | numbers("balance") | texts(*HEAD)
)
GAIN = GAINED | numbers("mean", "low", "high") | integers("runs")
MASKING_GAIN = Sheet("masking_gain", GAIN, masking_gain)
LOST = (f"{begin}_{cause}" for begin in ("lost_to", "lost_share") for cause in LOSS_PARTS)
REPLAY = Sheet(
    "replay",
    PLACE | MEAN | integers("diverged") | numbers("images", "learned", "forgetting", "lost", *LOST),
    replay,
)
DRIFT = Sheet("projection_drift", MOVE | MEAN, projection_drift)


def _learned(study: Study, runs: pl.DataFrame) -> dict[str, float]:
    """Return in percent how well each network knew its tasks right after them, on average."""
    right, sizes, orders = (
        study.arrays(name, runs) for name in ("right_by_task", "n_per_task", "task_order")
    )
    learned = {}
    for digest, n_per_task in sizes.items():
        if len(n_per_task):  # else test samples belong to no task
            by_task = share(right[digest], n_per_task)
            matrix = after_each_task(by_task, orders[digest].tolist())
            learned[digest] = float(100 * np.diag(matrix).mean())
    return learned


def _share(cause: str) -> pl.Expr:
    """Return the share of a cause; null where nothing was lost."""
    return pl.when(pl.col("lost") == 0).then(0.0).otherwise(f"lost_share_{cause}")


def _networks(study: Study) -> pl.DataFrame:
    """Return the finished networks, each with its setting in words."""
    runs = with_names(study.replay.filter(state="done"))
    setting = pl.struct(NETWORK).map_elements(setting_in_words, pl.String)
    return runs.with_columns(setting.alias("setting"))


def since_learned(drift: NDArray[Any]) -> Iterator[tuple[int, float]]:
    """Average (T, classes) over classes, by the number of tasks since each was learned."""
    known = ~np.isnan(drift)
    ago = np.arange(len(drift))[:, None] - known.argmax(axis=0)
    for tasks in range(len(drift)):
        values = drift[known & (ago == tasks)]
        if len(values):
            yield tasks, float(values.mean())


def section(tables: Tables) -> Section | None:
    """Show accuracy against replay balance and against images, drift, and the causes of loss."""
    table = tables["replay"].drop_nulls("mean")
    if table.is_empty():
        return None
    text = (
        "The whole network learns, and a memory of old tasks is replayed. Replay balance: how "
        "often an old class comes in an epoch for each instance of a new one. The less is "
        "replayed, the fewer images a network is trained on."
    )
    shown = [*_gains(tables["masking_gain"]), *(_table(*part) for part in _settings(table))]
    panels = [_accuracy(table), _causes(table), *_drift(tables["projection_drift"])]
    return Section("replay", "End to end with replay", [text], panels, shown)


TOPIC = Topic(section, needs=[REPLAY], also=[DRIFT, MASKING_GAIN])


def _settings(table: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """Take a table apart by stream and setting; titles say in what settings differ."""
    settings = [set(setting.split(", ")) for setting in table["setting"].unique()]
    common = set.intersection(*settings) if settings else set()
    return [
        (", ".join([stream, *(word for word in setting.split(", ") if word not in common)]), part)
        for (stream, setting), part in table.group_by("stream", "setting", maintain_order=True)
    ]


def _accuracy(table: pl.DataFrame) -> Panel:
    images = alt.X("images:Q", title="images trained on")
    figures = [
        Figure(("replay", what, title), f"{title}: {what}", *_lines(part, x, what))
        for title, part in _settings(table)
        for what, x in (("balance", _balance(part)), ("images", images))
    ]
    caption = "Final accuracy on all classes, mean and deviation over seeds."
    caption += cited("Fig. 7", table)
    return Panel(caption, figures, heads_of(table))


def _balance(part: pl.DataFrame) -> alt.X:
    """Lay out balances by their ratios; where one is 0, by their values."""
    kind: Literal["log", "linear"] = "log" if part["balance"].gt(0).all() else "linear"
    axis = alt.Axis(values=part["balance"].unique().sort().to_list(), format="~g")
    return alt.X("balance:Q", title="replay balance", scale=alt.Scale(type=kind), axis=axis)


def _lines(part: pl.DataFrame, x: alt.X, along: str) -> Plot:
    tooltip = told(("name:N", "layer"), ("balance:Q", "balance"), ("images:Q", "images"))
    return lines(part, x, along, tooltip, "balance", "images", y=f"final {POINTS}")


def _causes(table: pl.DataFrame) -> Panel:
    figures = [
        Figure(("replay", "causes", title), title, *_bars(part))
        for title, part in _settings(table.drop_nulls("lost"))
    ]
    caption = (
        "Test samples that were right when their class was learned and are wrong at the end, in "
        "percent of the test set, by Shapley shares of three repairs: the output vectors as first "
        "learned, later classes removed, the features as first learned. Mean over seeds."
    )
    return Panel(caption, figures)


def _bars(part: pl.DataFrame) -> Plot:
    typed = pl.col("balance").map_elements("{:g}".format, pl.String)
    where = pl.format("{}, balance {}", "name", typed).alias("where")
    long = pl.concat(
        part.select(
            where,
            "runs",
            pl.lit(cause).alias("cause"),
            pl.lit(place).alias("place"),
            pl.col(f"lost_to_{end}").alias("mean"),
            pl.col(f"lost_share_{end}").alias("share"),
        )
        for place, (end, cause) in enumerate(PARTS.items())
    )
    order, causes = list(part.with_columns(where)["where"]), list(PARTS.values())
    legend = alt.Legend(orient="top", title="lost to", columns=3)
    chart = alt.Chart(DATA).mark_bar(stroke="black", strokeWidth=0.5).encode(
        x=alt.X("mean:Q", stack="zero", title="lost, % of the test set"),
        y=alt.Y("where:N", sort=order, title=None, axis=alt.Axis(labelLimit=220)),
        color=alt.Color(
            "cause:N", scale=alt.Scale(domain=causes, range=list(COLOURS)), legend=legend
        ),
        order=alt.Order("place:Q"),
        tooltip=[
            alt.Tooltip("where:N", title="layer"), alt.Tooltip("cause:N", title="lost to"),
            alt.Tooltip("mean:Q", title="% of the test set", format=".2f"),
            alt.Tooltip("share:Q", title="% of what was lost", format=".1f"),
            alt.Tooltip("runs:Q", title="networks"),
        ],
    )  # fmt: skip
    rows = rows_of(long, "where", "cause", "place", "mean", "share", "runs")
    return sized(chart, height=19 * len(order) + 10), rows


def _drift(table: pl.DataFrame) -> list[Panel]:
    if table.is_empty():
        return []
    figures = [
        Figure(
            ("replay-drift", measure, f"{balance:g}", title),
            f"{MOVED[measure]}, balance {balance:g}",
            *_over_tasks(some.filter(measure=measure, balance=balance), MOVED[measure]),
        )
        for title, some in _settings(table)
        for balance in some["balance"].unique().sort()
        for measure in MOVED
    ]
    caption = (
        "Projection drift: how the features of a class's test images have changed since it was "
        "learned; mean over classes, then mean and deviation over seeds. Along its vector: below "
        "0 they moved away from the output vector that the class had then."
    )
    return [Panel(caption, figures, heads_of(table), small=True)]


def _over_tasks(part: pl.DataFrame, title: str) -> Plot:
    x = alt.X("tasks_ago:O", title="tasks since", axis=alt.Axis(labelAngle=0))
    tooltip = [
        alt.Tooltip("name:N", title="layer"), alt.Tooltip("tasks_ago:O", title="tasks since"),
        alt.Tooltip("mean:Q", format=".2f"), alt.Tooltip("deviation:Q", format=".2f"),
        alt.Tooltip("runs:Q", title="networks"),
    ]  # fmt: skip
    return lines(part, x, "tasks_ago", tooltip, y=title, whole=None, size=(280, 200))


def _gains(table: pl.DataFrame) -> list[Table]:
    if table.is_empty():
        return []
    rows = [
        [short(row["balance"]), words(full_name(row["head"], row["mask"])),
         number(row["epochs"], 0), *(number(row[n], sign=True) for n in ("mean", "low", "high")),
         number(row["runs"], 0), words(row["setting"]), words(row["stream"])]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    header = ("balance", "layer", "epochs", "points added", "at least", "at most", "pairs",
              "setting", "stream")  # fmt: skip
    caption = (
        "What a mask adds to the final accuracy, in points: mean over pairs of networks of the "
        f"same seed, one with the mask and one without, and Student's interval at "
        f"{100 * LEVEL:.0f} %."
    )
    return [Table(("replay", "masking gain"), caption, header, rows)]


def _table(title: str, part: pl.DataFrame) -> Table:
    rows = [
        [short(row["balance"]), words(row["name"]), mean_of(row),
         number(row["runs"], 0), number(row["images"], 0), number(row["learned"]),
         number(row["forgetting"]), number(row["lost"]),
         *(number(row[f"lost_share_{end}"], 1) for end in PARTS)]
        for row in part.iter_rows(named=True)
    ]  # fmt: skip
    causes = (f"to {cause}, % of it" for cause in PARTS.values())
    header = ("balance", "layer", "final accuracy, %", "networks", "images",
              "right after a task, %", "forgetting, %", "lost, %", *causes)  # fmt: skip
    caption = (
        f"{title}: {part['setting'][0]}; mean ± deviation over seeds. Right after a task: on its "
        "classes, mean over tasks. Forgetting: how far a task fell below its best."
    )
    return Table(("replay", title), caption, header, rows)
