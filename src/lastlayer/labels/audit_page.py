"""What is on the page of an audit: what was found, and the worst rows with what they show."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import altair as alt

from lastlayer.core.names import percent
from lastlayer.report.charts import DATA, class_axis, sized
from lastlayer.report.page import Page
from lastlayer.report.section import Figure, Panel, Section, name_all
from lastlayer.report.table import Cell, Table, number, words

if TYPE_CHECKING:
    import polars as pl

    from lastlayer.labels.findings import Audit

MOST = 100  # rows of a table on the page
MOST_CLASSES = 40  # of the chart
PICTURES = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}
LARGEST, ROOM = 1 << 20, 24 << 20  # bytes of a picture on the page, and of all of them
ABOUT = (
    "Each row was answered by a head that had learned all the others. A label that they contradict "
    "may be wrong; nothing was changed."
)


class _Shown:
    """What a column shows: a picture while there is room for it, a link, or a text."""

    def __init__(self) -> None:
        self.room = ROOM

    def cell(self, text: str) -> Cell:
        data = _picture(text, self.room)
        self.room -= len(data)
        link = text if text.startswith(("https://", "http://")) else ""
        return Cell(text, text or None, picture=data, link=link)


def audit_page(audit: "Audit") -> Page:
    """Return the page of an audit."""
    made = [_found(audit), _worst(audit), _confusion(audit), _copies(audit), _far(audit)]
    made += [_same(audit), _judged(audit)]
    sections = name_all([section for section in made if section is not None])
    title = f"Labels of {audit.label or 'these rows'}: which may be wrong"
    return Page(title, audit.sentences[0], ABOUT, sections, notices=audit.warnings)


def _found(audit: "Audit") -> Section:
    return Section("found", "What was found", audit.sentences[1:], listed=True)


def _worst(audit: "Audit") -> Section:
    shown = audit.worst(MOST)
    score = [] if shown["score"].equals(shown["wrong"], null_equal=True) else ["score"]
    columns = [name for name in shown.columns if name not in ("score", "wrong")]
    pictures = _Shown()
    cells = [
        [_cell(row[name], pictures if name == audit.show else None) for name in columns]
        + [number(row[name], digits=3) for name in score]
        + [number(100 * row["wrong"], digits=1)]
        for row in shown.to_dicts()
    ]
    marked = [place for place, wrong in enumerate(shown["wrong"]) if wrong > 0.5]
    caption = f"The {shown.height} most suspicious rows; marked: more probably wrong than right"
    header = [*columns, *score, "wrong, %"]
    table = Table(("worst",), caption, header, cells, marked=marked)
    return Section("worst", "The worst rows", tables=[table])


def _cell(value: object, pictures: _Shown | None) -> Cell:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(f"{value:g}" if isinstance(value, float) else str(value), value)
    text = "" if value is None else str(value)
    return words(text) if pictures is None else pictures.cell(text)


def _picture(text: str, room: int) -> str:
    """Return a picture in a file as a data: address; empty where it is none, or too large."""
    path = Path(text)
    kind = PICTURES.get(path.suffix.lower())
    try:
        if kind is None or not path.is_file() or path.stat().st_size > min(LARGEST, room):
            return ""
        return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    except (OSError, ValueError):  # a text that no file can be called, or one that cannot be read
        return ""


def _confusion(audit: "Audit") -> Section | None:
    rows = audit.confusion.filter(audit.confusion["rows"] >= 0.5)
    if not rows.height:
        return None
    cells = [[words(a), words(b), number(n, digits=1)] for a, b, n in rows.head(MOST).rows()]
    caption = "How many rows of each class are expected to carry each wrong label"
    table = Table(("confusion",), caption, ("label", "truth", "rows"), cells)
    title = "Which labels are taken for which"
    panels = [_chart(audit, rows)] if len(audit.names) <= MOST_CLASSES else []
    return Section("confusion", title, (), panels, [table])


def _chart(audit: "Audit", rows: "pl.DataFrame") -> Panel:
    place = {name: i for i, name in enumerate(audit.names)}
    data = [
        {"label": place[a], "truth": place[b], "called": a, "true": b, "rows": round(n, 2)}
        for a, b, n in rows.rows()
    ]
    names = dict(enumerate(audit.names))
    chart = alt.Chart(DATA).mark_rect().encode(
        x=alt.X("truth:O", title="truth", axis=class_axis(names, -60)),
        y=alt.Y("label:O", title="label", axis=class_axis(names)),
        color=alt.Color("rows:Q", title="rows", scale=alt.Scale(scheme="blues")),
        tooltip=["called:N", "true:N", "rows:Q"],
    )  # fmt: skip
    side = min(640, max(200, 18 * len(audit.names)))
    figure = Figure(("confusion",), "Labels beside what rows are", sized(chart, side), data)
    return Panel("Each cell: rows of one class that carry the label of another.", [figure])


def _copies(audit: "Audit") -> Section | None:
    if not audit.duplicates.height:
        return None
    cells = [
        [number(row, 0), words(label), number(other, 0), words(its), number(distance, 4)]
        for row, other, label, its, distance in audit.duplicates.head(MOST).rows()
    ]
    caption = "Rows that are alike and have different labels; distance 0: exact copies"
    header = ("row", "label", "other row", "its label", "distance")
    table = Table(("copies",), caption, header, cells)
    said = "The distance is a share of the usual distance between two rows of a class."
    return Section("copies", "Copies with different labels", [said], tables=[table])


def _far(audit: "Audit") -> Section | None:
    if not audit.strange.height:
        return None
    shown = audit.strange.head(MOST).rows()
    cells = [[number(row, 0), words(label), number(far, 1)] for row, label, far in shown]
    caption = "Rows far from all classes, by interquartile ranges above the upper quartile"
    table = Table(("far",), caption, ("row", "label", "ranges"), cells)
    return Section("far", "Rows that may be of no class", tables=[table])


def _same(audit: "Audit") -> Section | None:
    if not audit.same.height:
        return None
    shown = audit.same.head(MOST).rows()
    cells = [[words(a), words(b), number(100 * share, 1)] for a, b, share in shown]
    caption = "Pairs of classes of which left-out rows are told apart no better than by chance"
    table = Table(("same",), caption, ("class", "other", "told apart, %"), cells)
    return Section("same", "Classes that may be one", tables=[table])


def _judged(audit: "Audit") -> Section:
    said = [
        f"{audit.head} learned all rows; each was then answered as if it, and its copies with the "
        "same label, had not been learned: in closed form, without fitting again.",
        "Logits are divided by a temperature, so that they agree with the labels as probabilities.",
        f"The noise model: a label is wrong with probability {percent(audit.noise['rate'], 2)}, "
        f"whatever the row; {percent(1 - audit.noise['alike'], 0)} of wrong labels are any other "
        "class, each as likely, the others one that the class is confused with. A label that "
        "contradicts an otherwise clear row counts as a mistake; one between classes that "
        "overlap does not. Without such a model mistakes and overlap cannot be told apart.",
        "The range holds 95 times in 100 if the model does. Mistakes that always go to the most "
        "similar class look like overlap, and are counted too low; rows that the head cannot "
        "describe look like mistakes, and are counted too high.",
    ]
    return Section("judged", "How it was judged", said, listed=True)
