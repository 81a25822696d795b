"""What is on the page of an advice, for somebody who has not read the paper."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt
import numpy as np

from lastlayer.advice.choosing import MARGIN
from lastlayer.advice.linear_losses import LINEAR
from lastlayer.advice.needs import time_in_words
from lastlayer.advice.words import details_of
from lastlayer.catalogue.head_cards import card_of, in_plain_words, size_in_words, split_name
from lastlayer.evaluate.splits import PART
from lastlayer.report.charts import DATA, class_axis, sized, switched
from lastlayer.report.looks import encode_heads, layer_scale, place_of
from lastlayer.report.page import Fact, Page
from lastlayer.report.section import Chart, Figure, Panel, Section, name_all
from lastlayer.report.table import Cell, Row, Table, number, words

if TYPE_CHECKING:
    from lastlayer.advice.answer import Advice

HEIGHT = 320
MOST_LINES = 8  # curves that can be told apart
MOST_CELLS = 4000  # of the picture of tasks and classes
ABOUT = (
    "A row is one sample: its features, and its label. A head is the last layer of a classifier, "
    "which gives a row its label. Held-out rows are training rows that no head has learned."
)


def advice_page(advice: "Advice", then: str = "") -> Page:
    """Return the page of an advice; ``then``: the command that comes next."""
    made = (_candidates, _along, _why, _stream, _judged)
    sections = name_all([section(advice) for section in made])
    title = f"Which head for this stream: {advice.head}"
    return Page(title, advice.answer, ABOUT, sections, facts=_facts(advice, then))


def _facts(advice: "Advice", then: str) -> list[Fact]:
    """Return what a reader who decides must know: what it reaches, costs, how sure, what next."""
    head, choice, scores = advice.head, advice.chosen, advice.choice.scores
    reached = choice.scores.accuracy(head)
    beside = []
    if LINEAR in scores.names and head != LINEAR:
        beside.append(f"{_of_100(scores.of(LINEAR))} with a linear layer trained on what comes")
    for name in advice.references.names[:1]:
        beside.append(f"{_of_100(advice.references.scores.of(name))} with a {name}")
    plain = in_plain_words(head)
    keeps = "every row" if card_of(head).abilities.keeps_samples else "no row of yours"
    size = size_in_words(choice.sizes[head])
    time = time_in_words(advice.judgement.verdicts[head].latency)
    held = sum(map(len, advice.judgement.held_y))
    sure = [f"From {held:,} answers to rows that it had not learned: a 95 % interval."]
    for which, found in (("test", advice.tested), ("validation", advice.validated)):
        if found is not None:
            right = _of_100(found.scores.of(found.head))
            sure.append(f"Of {found.rows:,} {which} rows, looked at only once: {right} of 100.")
    facts = [
        Fact(
            "Of 100 answers",
            f"{_of_100(reached.value)} are right",
            [f"For comparison: {'; '.join(beside)}."] if beside else [],
            reached.value,
        ),
        Fact(
            "What it is, and costs",
            f"{size} of memory, {time} an answer",
            [f"It keeps {keeps}.", *([f"{head} {plain}."] if plain else [])],
        ),
        Fact(
            "How sure that is",
            f"{100 * reached.low:.1f} to {100 * reached.high:.1f} of 100",
            sure,
        ),
    ]
    return [*facts, Fact("What to run next", "", code=then)] if then else facts


def _of_100(share: float) -> str:
    return f"{100 * share:.0f}"


def _why(advice: "Advice") -> Section:
    rows = [
        [words(c.true), words(c.taken_for), number(100 * c.share, digits=1)]
        for c in advice.why.confusions
    ]
    caption = f"The classes that {advice.head} confuses most, on held-out rows"
    table = Table(("confusions",), caption, ("rows of", "taken for", "% of its rows"), rows)
    details = details_of(advice)
    words_ = [reason for reason in advice.reasons if reason not in details]
    return Section(
        "why", "Why", words_, (), [table] if rows else (), listed=True,
        folded=details, fold="For readers who know heads",
    )  # fmt: skip


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
    heads = sorted((row["head"] for row in rows), key=place_of)
    does = [[words(name), words(in_plain_words(name))] for name in heads]
    plain = Table(("plain",), "What each head does", ("head", "what it does"), does)
    title = "What each head reaches and keeps"
    return Section("candidates", title, (), [_reached(advice)], [table, plain])


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


def _reached(advice: "Advice") -> Panel:
    """Draw what each head reaches, with its name on the left and what it keeps on the right."""
    table = advice.table.sort("accuracy", descending=True, maintain_order=True)
    rows = [
        _named(advice, row["head"])
        | {"keeps": size_in_words(row["memory"])}
        | {name: round(100 * row[name], 3) for name in ("accuracy", "low", "high")}
        for row in table.to_dicts()
    ]
    names = table["head"].to_list()
    share = "right on held-out rows, %"
    y = alt.Y("name:N", sort=names, title=None, axis=alt.Axis(labelLimit=190, grid=False))
    base = alt.Chart(DATA).encode(y=y)
    # What a head keeps stands beyond the whole, where no mark can be.
    lowest = min(row["low"] for row in rows)
    step = 20 if lowest < 40 else 10
    least = step * math.floor(lowest / step)
    ends = alt.Scale(domain=[least, 100 + 0.2 * (100 - least)], nice=False)
    ticks = alt.Axis(values=[*range(least, 101, step)])
    bar = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", title=share, scale=ends, axis=ticks), x2="high:Q"
    )
    point = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("accuracy:Q", title=share),
        color=alt.Color("head:N", scale=layer_scale([row["head"] for row in rows]), legend=None),
        tooltip=["name:N", "accuracy:Q", "low:Q", "high:Q", "keeps:N"],
    )
    ring = base.transform_filter("datum.advised").mark_point(
        size=260, color="#00548a", strokeWidth=2
    ).encode(x=alt.X("accuracy:Q", title=share))  # fmt: skip
    text = base.mark_text(align="right", fontSize=10).encode(x=alt.value("width"), text="keeps:N")
    chart = sized(alt.layer(bar, point, ring, text), 18 * len(rows))
    caption = (
        "Each dot is a head, the ring is the advised one; bars are 95 % intervals, and what a head "
        "keeps is on the right. What heads do is in the second table; +single and +group are masks."
    )
    figure = Figure(("reached",), "Right answers, and memory", chart, rows)
    return Panel(caption, [figure])


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
        f"About {100 * PART:.0f} % of the rows of each class in each task are held out, {splits}; "
        f"every head learns the stream from the rest and answers for them at the end, {held} times."
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
