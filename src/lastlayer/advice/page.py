"""The answer as one page for a browser, for somebody who has not read the paper."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
from jinja2 import Environment
from markupsafe import Markup

from lastlayer import __version__
from lastlayer.advice.choosing import MARGIN
from lastlayer.advice.needs import time_in_words
from lastlayer.advice.split import PART
from lastlayer.advice.why import LINEAR
from lastlayer.atomic import in_place_of
from lastlayer.catalogue import size_in_words, split_name
from lastlayer.report.drawing import javascript
from lastlayer.report.looks import look_of

if TYPE_CHECKING:
    from lastlayer.advice.answer import Advice

ROWS = alt.NamedData("rows")
LEGEND = alt.Legend(title=None, orient="bottom", columns=3)
DASHES = {"none": [1, 0], "group": [7, 3], "single": [2, 2]}
MOST_LINES = 8  # curves that can be told apart
MOST_CELLS = 4000  # of the picture of tasks and classes
ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class Drawing:
    """A chart with its words."""

    name: str
    title: str
    caption: str
    json: Markup
    height: int


@dataclass(frozen=True)
class Line:
    """A row of a table: what is read, and what it is sorted by where that is a number."""

    cells: Sequence[tuple[str, float | None]]
    marked: bool = False


@dataclass(frozen=True)
class Table:
    """A table with its caption."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Line]


@dataclass(frozen=True)
class Part:
    """A section of the page."""

    name: str
    title: str
    words: Sequence[str] = ()
    charts: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()


def write_page(advice: "Advice", path: Path) -> None:
    """Write the page: whole, or not at all."""
    with in_place_of(path) as part:
        part.write_text(make_page(advice), encoding="utf-8")


def make_page(advice: "Advice") -> str:
    """Return the page as text; it asks nothing of any other machine."""
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        _file("lastlayer.advice", "page.html.jinja")
    )
    bundle, why = javascript()
    return template.render(
        title=f"Which head for this stream: {advice.head}",
        version=__version__,
        answer=advice.answer,
        why_no_charts=why,
        parts=[_why(advice), _candidates(advice), _way(advice), _stream(advice), _judged(advice)],
        css=Markup(_file("lastlayer.report", "page.css")),
        script=Markup(_file("lastlayer.report", "page.js")),
        bundle=Markup(bundle.replace("</script", "<\\/script")),
    )


def _file(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _drawing(
    name: str,
    title: str,
    caption: str,
    chart: alt.Chart | alt.LayerChart | alt.FacetChart,
    rows: list[dict[str, Any]],
    height: int = 320,
) -> Drawing:
    spec = chart.properties(height=height).to_dict()
    spec |= {"description": title, "datasets": {"rows": rows}}
    text = json.dumps(spec, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    safe = "".join(ESCAPED.get(character, character) for character in text)
    return Drawing(name, title, caption, Markup(safe), height + 60)


def _why(advice: "Advice") -> Part:
    pairs = [
        Line([(c.true, None), (c.taken_for, None), (f"{100 * c.share:.1f}", 100 * c.share)])
        for c in advice.why.confusions
    ]
    caption = f"The classes that {advice.head} confuses most, on held-out rows"
    header = ("rows of", "taken for", "% of its rows")
    return Part(
        "why",
        "Why, and what it costs",
        advice.reasons,
        tables=[Table(caption, header, pairs)] if pairs else (),
    )


def _candidates(advice: "Advice") -> Part:
    rows = advice.table.to_dicts()
    lines = [
        Line(
            [
                (row["head"], None),
                (f"{100 * row['accuracy']:.1f}", row["accuracy"]),
                (f"{100 * row['low']:.1f} to {100 * row['high']:.1f}", row["low"]),
                _points(row["behind"]),
                (size_in_words(row["memory"]), row["memory"]),
                (time_in_words(row["latency"]), row["latency"]),
                (_verdict(row), None),
            ],
            marked=row["head"] == advice.head,
        )
        for row in rows
    ]
    header = ("head", "% right", "95 %", "points behind", "keeps", "one answer", "verdict")
    caption = "All candidates on the held-out rows"
    return Part("candidates", "What each head reaches and keeps", (), [_costs(advice)],
                [Table(caption, header, lines)])  # fmt: skip


def _points(behind: float | None) -> tuple[str, float | None]:
    return ("", None) if behind is None else (f"{100 * behind:.1f}", behind)


def _verdict(row: dict[str, Any]) -> str:
    if row["unmet"]:
        return f"does not meet {row['unmet'].replace('_', ' ')}"
    if row["alike"] != row["head"] and row["verdict"] != "advised":
        return f"{row['verdict']}, as {row['alike']}"
    return str(row["verdict"])


def _looks(heads: Sequence[str]) -> tuple[alt.Scale, alt.Scale]:
    """Return layers the colours and markers that they have everywhere."""
    layers = list(dict.fromkeys(split_name(name)[0] for name in heads))
    looks = [look_of(layer) for layer in layers]
    colours, markers = [look.colour for look in looks], [look.marker for look in looks]
    return alt.Scale(domain=layers, range=colours), alt.Scale(domain=layers, range=markers)


def _costs(advice: "Advice") -> Drawing:
    """Draw accuracy against memory, the advised head marked."""
    rows = [
        {
            "name": row["head"],
            "layer": split_name(row["head"])[0],
            "kilobytes": row["memory"] / 1000,
            "accuracy": round(100 * row["accuracy"], 3),
            "low": round(100 * row["low"], 3),
            "high": round(100 * row["high"], 3),
            "advised": row["head"] == advice.head,
        }
        for row in advice.table.to_dicts()
    ]
    colour, marker = _looks(advice.table["head"].to_list())
    x = alt.X(
        "kilobytes:Q",
        title="what it keeps, kB (log)",
        scale=alt.Scale(type="log", padding=14),
        axis=alt.Axis(tickCount=4, format="~s", labelOverlap="greedy", grid=False),
    )
    base = alt.Chart(ROWS).encode(x=x)
    share = "right on held-out rows, %"
    y = alt.Y("accuracy:Q", title=share, scale=alt.Scale(zero=False))
    bar = base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q", title=share), y2="high:Q")
    point = base.mark_point(filled=True, size=90, opacity=0.9).encode(
        y=y,
        color=alt.Color("layer:N", scale=colour, legend=LEGEND),
        shape=alt.Shape("layer:N", scale=marker),
        tooltip=["name:N", "accuracy:Q", "kilobytes:Q"],
    )
    chosen = base.transform_filter("datum.advised")
    ring = chosen.mark_point(size=420, color="#00548a", strokeWidth=2).encode(y=y)
    text = chosen.mark_text(dy=-18, fontWeight="bold").encode(y=y, text="name:N")
    return _drawing(
        "costs",
        "Accuracy against memory",
        "Each mark is a head, the ring is the advised one; bars are 95 % intervals. Heads of one "
        "colour are one layer, trained with and without masks.",
        alt.layer(bar, point, ring, text),
        rows,
    )


def _way(advice: "Advice") -> Part:
    """Draw how heads fare along the stream: the advised, the linear layer and the best others."""
    order = advice.table.sort("accuracy", descending=True)["head"].to_list()
    lines = dict.fromkeys(advice.choice.lines[name] for name in order)
    shown = list(dict.fromkeys([advice.head, *(n for n in order if n == LINEAR), *lines]))
    shown = shown[:MOST_LINES]
    rows = [
        {
            "name": row["head"],
            "layer": split_name(row["head"])[0],
            "mask": split_name(row["head"])[1],
            "task": row["task"],
            "accuracy": round(100 * row["accuracy"], 3),
            "advised": row["head"] == advice.head,
        }
        for row in advice.curves.drop_nulls().to_dicts()
        if row["head"] in shown
    ]
    masks = sorted({row["mask"] for row in rows}, key=list(DASHES).index)
    colour, _ = _looks(shown)
    dash = alt.Scale(domain=masks, range=[DASHES[mask] for mask in masks])
    base = alt.Chart(ROWS).encode(
        x=alt.X("task:Q", title="after task", axis=alt.Axis(tickMinStep=1, format="d")),
        y=alt.Y("accuracy:Q", title="right on what has come, %", scale=alt.Scale(zero=False)),
        color=alt.Color("layer:N", scale=colour, legend=LEGEND),
        detail="name:N",
        tooltip=["name:N", "task:Q", "accuracy:Q"],
    )
    line = base.mark_line(point=True).encode(
        strokeDash=alt.StrokeDash("mask:N", scale=dash, legend=None),
        strokeWidth=alt.condition("datum.advised", alt.value(3.5), alt.value(1.5)),
    )
    one = advice.course.n_tasks == 1
    caption = (
        "There is one task, so each head is one point."
        if one
        else "After each task (of many, some): accuracy on the held-out rows of the tasks so far. "
        "A line that falls is not always forgetting: more classes are harder. The thick line is "
        "the advised head; long dashes are the mask group, short ones single."
    )
    drawing = _drawing("way", "Along the stream", caption, line, rows)
    return Part("way", "How heads fare along the stream", (), [drawing])


def _stream(advice: "Advice") -> Part:
    presence, names = advice.stream.presence, advice.course.names
    classes = np.flatnonzero(presence.sum(axis=0))
    words = advice.stream.sentences
    if presence.shape[0] * len(classes) > MOST_CELLS:
        classes = classes[: max(1, MOST_CELLS // presence.shape[0])]
        words = (*words, f"The picture shows the first {len(classes)} classes.")
    tasks = advice.course.task_names or tuple(str(t + 1) for t in range(len(presence)))
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
    written = json.dumps({str(place): names[c] for place, c in enumerate(classes)})
    axis = alt.Axis(
        labels=few,
        ticks=few,
        labelLimit=140,
        labelExpr=f"({written})[datum.value]" if few else alt.Undefined,
    )
    chart = (
        alt.Chart(ROWS)
        .mark_rect(stroke="white", strokeWidth=0.5)
        .encode(
            x=alt.X(
                "task:O",
                title="task",
                axis=alt.Axis(labelAngle=0, labelOverlap="greedy", labelSeparation=6),
            ),
            y=alt.Y("class:O", title=advice.course.label if few else "classes", axis=axis),
            color=alt.Color(
                "arrival:N",
                scale=alt.Scale(domain=["arrives", "returns"], range=["#00548a", "#9cc4e4"]),
                legend=alt.Legend(title=None, orient="bottom"),
            ),
            tooltip=["name:N", "called:N", "rows:Q", "arrival:N"],
        )
    )
    height = min(700, max(160, 16 * len(classes) if few else 4 * len(classes)))
    drawing = _drawing(
        "stream",
        "When classes arrive and return",
        "Dark: a class comes for the first time; light: it comes again.",
        chart,
        rows,
        height,
    )
    return Part("stream", "The stream", words, [drawing])


def _judged(advice: "Advice") -> Part:
    judgement = advice.judgement
    n, held = len(judgement.splits), sum(map(len, judgement.held_y))
    splits = "once" if n == 1 else f"{n} times, so that small data are not judged by a few rows"
    words = [
        f"About {PART:.0%} of the rows of each class in each task are held out, {splits}; every "
        f"head learns the stream from the rest and answers for them at the end, {held} times.",
        "Heads trained by gradient see features scaled by one number, and take the learning rate "
        "that does best on a further part held out of what they learn from.",
        f"The best on the held-out rows is advised. A thriftier one takes its place only if it is "
        f"shown to lose less than {100 * MARGIN:.1f} points (paired bootstrap, 95 % for all "
        "candidates at once).",
        "Test rows are looked at once, after the choice."
        if advice.tested is not None
        else "There are no test rows.",
        "What it cannot know: tomorrow may drift otherwise than yesterday, held-out rows of the "
        "past are not the future, and labels may come late.",
    ]
    return Part("judged", "How it was judged", words)
