"""What is on the page of an advice, for somebody who has not read the paper."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from lastlayer.advice.choosing import MARGIN
from lastlayer.advice.needs import time_in_words
from lastlayer.advice.why import LINEAR
from lastlayer.catalogue import size_in_words, split_name
from lastlayer.evaluate.stream import PART
from lastlayer.report.charts import DATA, class_axis, sized, switched
from lastlayer.report.looks import encode_heads, place_of
from lastlayer.report.page import Page
from lastlayer.report.section import Chart, Figure, Panel, Section, name_all
from lastlayer.report.table import Cell, Row, Table, number, words

if TYPE_CHECKING:
    from lastlayer.advice.answer import Advice

HEIGHT = 320
MOST_LINES = 8  # curves that can be told apart
MOST_CELLS = 4000  # of the picture of tasks and classes
ABOUT = (
    "A head is the last layer of a classifier on frozen features; it is right when it gives a row "
    "its label. Colour and marker are the layer, the dash is the mask."
)


def advice_page(advice: "Advice") -> Page:
    """Return the page of an advice."""
    made = (_why, _candidates, _along, _stream, _judged)
    sections = name_all([section(advice) for section in made])
    return Page(f"Which head for this stream: {advice.head}", advice.answer, ABOUT, sections)


def _why(advice: "Advice") -> Section:
    rows = [
        [words(c.true), words(c.taken_for), number(100 * c.share, digits=1)]
        for c in advice.why.confusions
    ]
    caption = f"The classes that {advice.head} confuses most, on held-out rows"
    table = Table(("confusions",), caption, ("rows of", "taken for", "% of its rows"), rows)
    title = "Why, and what it costs"
    return Section("why", title, advice.reasons, (), [table] if rows else (), listed=True)


def _candidates(advice: "Advice") -> Section:
    rows = advice.table.to_dicts()
    cells = [
        [
            words(row["head"]),
            number(100 * row["accuracy"], digits=1),
            Cell(f"{100 * row['low']:.1f} to {100 * row['high']:.1f}", row["low"]),
            number(None if row["behind"] is None else 100 * row["behind"], digits=1),
            Cell(size_in_words(row["memory"]), row["memory"]),
            Cell(time_in_words(row["latency"]), row["latency"]),
            words(_verdict(row)),
        ]
        for row in rows
    ]
    advised = [place for place, row in enumerate(rows) if row["head"] == advice.choice.head]
    header = ("head", "% right", "95 %", "points behind", "keeps", "one answer", "verdict")
    caption = "All candidates on the held-out rows"
    table = Table(("candidates",), caption, header, cells, marked=advised)
    title = "What each head reaches and keeps"
    return Section("candidates", title, (), [_costs(advice)], [table])


def _verdict(row: Row) -> str:
    if row["unmet"]:
        return f"does not meet {row['unmet'].replace('_', ' ')}"
    if row["alike"] != row["head"] and row["verdict"] != "advised":
        return f"{row['verdict']}, as {row['alike']}"
    return str(row["verdict"])


def _named(advice: "Advice", name: str) -> Row:
    """Return what every row of a chart about a head holds."""
    head, mask = split_name(name)
    return {"name": name, "head": head, "mask": mask, "advised": name == advice.choice.head}


def _panel(name: str, title: str, caption: str, chart: Chart, rows: Sequence[Row]) -> Panel:
    """Return one chart of heads, with the legend that switches them off and on."""
    heads = sorted({row["name"] for row in rows}, key=place_of)
    figure = Figure((name,), title, sized(switched(chart, ()), HEIGHT), rows)
    return Panel(caption, [figure], heads)


def _costs(advice: "Advice") -> Panel:
    """Draw accuracy against memory, the advised head marked."""
    rows = [
        _named(advice, row["head"])
        | {"kilobytes": row["memory"] / 1000}
        | {name: round(100 * row[name], 3) for name in ("accuracy", "low", "high")}
        for row in advice.table.to_dicts()
    ]
    look = encode_heads(advice.table["head"].to_list())
    x = alt.X(
        "kilobytes:Q",
        title="what it keeps, kB (log)",
        scale=alt.Scale(type="log", padding=14),
        axis=alt.Axis(tickCount=4, format="~s", labelOverlap="greedy", grid=False),
    )
    base = alt.Chart(DATA).encode(x=x)
    share = "right on held-out rows, %"
    y = alt.Y("accuracy:Q", title=share, scale=alt.Scale(zero=False))
    bar = base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q", title=share), y2="high:Q")
    point = base.mark_point(filled=True, size=90, opacity=0.9).encode(
        y=y,
        color=look.colour,
        shape=look.shape,
        tooltip=["name:N", "accuracy:Q", "kilobytes:Q"],
    )
    chosen = base.transform_filter("datum.advised")
    ring = chosen.mark_point(size=420, color="#00548a", strokeWidth=2).encode(y=y)
    text = chosen.mark_text(dy=-18, fontWeight="bold").encode(y=y, text="name:N")
    return _panel(
        "costs",
        "Accuracy against memory",
        "Each mark is a head, the ring is the advised one; bars are 95 % intervals. Heads of one "
        "colour are one layer, trained with and without masks.",
        alt.layer(bar, point, ring, text),
        rows,
    )


def _along(advice: "Advice") -> Section:
    """Draw how heads fare along the stream: the advised, the linear layer and the best others."""
    order = advice.table.sort("accuracy", descending=True)["head"].to_list()
    lines = dict.fromkeys(advice.choice.lines[name] for name in order)
    shown = list(dict.fromkeys([advice.choice.head, *(n for n in order if n == LINEAR), *lines]))
    shown = shown[:MOST_LINES]
    rows = [
        _named(advice, row["head"])
        | {"task": row["task"], "accuracy": round(100 * row["accuracy"], 3)}
        for row in advice.curves.drop_nulls().to_dicts()
        if row["head"] in shown
    ]
    look = encode_heads(shown)
    base = alt.Chart(DATA).encode(
        x=alt.X("task:Q", title="after task", axis=alt.Axis(tickMinStep=1, format="d")),
        y=alt.Y("accuracy:Q", title="right on what has come, %", scale=alt.Scale(zero=False)),
        color=look.colour,
        detail="name:N",
    )
    line = base.mark_line().encode(
        strokeDash=look.dash,
        strokeWidth=alt.condition("datum.advised", alt.value(3.5), alt.value(1.5)),
    )
    point = base.mark_point(filled=True, size=45, opacity=1).encode(
        shape=look.shape, tooltip=["name:N", "task:Q", "accuracy:Q"]
    )
    caption = (
        "There is one task, so each head is one point."
        if advice.data.n_tasks == 1
        else "After each task (of many, some): accuracy on the held-out rows of the tasks so far. "
        "A line that falls is not always forgetting: more classes are harder. The thick line is "
        "the advised head; long dashes are the mask group, short ones single."
    )
    panel = _panel("along", "Along the stream", caption, alt.layer(line, point), rows)
    return Section("along", "How heads fare along the stream", (), [panel])


def _stream(advice: "Advice") -> Section:
    presence, names = advice.stream.presence, advice.data.names
    classes = np.flatnonzero(presence.sum(axis=0))
    said = advice.stream.sentences
    if presence.shape[0] * len(classes) > MOST_CELLS:
        classes = classes[: max(1, MOST_CELLS // presence.shape[0])]
        said = (*said, f"The picture shows the first {len(classes)} classes.")
    tasks = advice.data.task_names or tuple(str(t + 1) for t in range(len(presence)))
    first = (presence > 0).argmax(axis=0)
    rows = [
        {
            "task": t + 1,
            "called": tasks[t],
            "class": int(place),
            "name": names[c],
            "rows": int(presence[t, c]),
            "arrival": "arrives" if first[c] == t else "returns",
        }
        for place, c in enumerate(classes)
        for t in range(len(presence))
        if presence[t, c]
    ]
    few = len(classes) <= 40
    named = class_axis({place: names[c] for place, c in enumerate(classes)})
    numbered = alt.Axis(labelAngle=0, labelOverlap="greedy", labelSeparation=6)
    colours = alt.Scale(domain=["arrives", "returns"], range=["#00548a", "#9cc4e4"])
    chart = alt.Chart(DATA).mark_rect(stroke="white", strokeWidth=0.5).encode(
        x=alt.X("task:O", title="task", axis=numbered),
        y=alt.Y(
            "class:O",
            title=advice.data.label if few else "classes",
            axis=named if few else alt.Axis(labels=False, ticks=False),
        ),
        color=alt.Color(
            "arrival:N", scale=colours, legend=alt.Legend(title=None, orient="bottom")
        ),
        tooltip=["name:N", "called:N", "rows:Q", "arrival:N"],
    )  # fmt: skip
    height = min(700, max(160, 16 * len(classes) if few else 4 * len(classes)))
    figure = Figure(("stream",), "When classes arrive and return", sized(chart, height), rows)
    caption = "Dark: a class comes for the first time; light: it comes again."
    return Section("stream", "The stream", said, [Panel(caption, [figure])], listed=True)


def _judged(advice: "Advice") -> Section:
    judgement = advice.judgement
    n, held = len(judgement.splits), sum(map(len, judgement.held_y))
    splits = "once" if n == 1 else f"{n} times, so that small data are not judged by a few rows"
    held_out = (
        f"About {PART:.0%} of the rows of each class in each task are held out, {splits}; every "
        f"head learns the stream from the rest and answers for them at the end, {held} times."
    )
    if judgement.splits[0].held_z is not None:
        held_out = f"Every head learns all training rows, then answers for {held} validation rows."
    said = [
        held_out,
        "Heads trained by gradient see features scaled by one number, and take the learning rate "
        "that does best on a further part held out of what they learn from.",
        "The best on these rows is advised. A thriftier one takes its place if it is shown to lose "
        f"less than {100 * MARGIN:.1f} points (paired bootstrap, 95 % for all candidates at once); "
        "a much cheaper one if the rows cannot tell the two apart and it loses no more on them.",
        "Test rows are looked at once, after the choice."
        if advice.tested is not None
        else "There are no test rows.",
        "What it cannot know: tomorrow may drift otherwise than yesterday, held-out rows of the "
        "past are not the future, and labels may come late.",
    ]
    return Section("judged", "How it was judged", said, listed=True)
