"""What is on the page of a watch: each question with its answer, its evidence, and its classes."""

import math
from collections.abc import Mapping

import altair as alt

from lastlayer.live.watch.alarm import Question
from lastlayer.live.watch.rules import MOVED, STRANGE, WORSE, Rule
from lastlayer.live.watch.verdicts import ASKS, Report, Verdict, percent
from lastlayer.report.charts import DATA, sized
from lastlayer.report.page import Page
from lastlayer.report.section import Figure, Panel, Section, name_all
from lastlayer.report.table import Cell, Table, number, words

HEIGHT = 220
ABOUT = (
    "For each question, evidence of a change since the calibration is collected. While nothing "
    "has changed it is not expected to grow; where it reaches the dashed line there is an alarm."
)


def watch_page(
    report: Report, questions: Mapping[str, Question], rules: Mapping[str, Rule]
) -> Page:
    """Return the page of a watch."""
    sections = [
        _section(verdict, questions[verdict.question], rules[verdict.question])
        for verdict in report.verdicts
    ]
    yes = [_says(verdict) for verdict in report.alarms]
    blind = "" if all(one.rows for one in report.verdicts) else " It cannot tell all: see below."
    answer = f"Alarm: {'; '.join(yes)}." if yes else f"There is no sign of any change.{blind}"
    return Page("How the head is doing", answer, ABOUT, name_all(sections),
                (report.promise, *report.notices))  # fmt: skip


def _says(verdict: Verdict) -> str:
    """Return an alarm in a few words."""
    names = list(verdict.classes)
    few = f": {', '.join(names[:3])}{', …' if len(names) > 3 else ''}" if names else ""
    return {
        WORSE: "the head is getting worse",
        STRANGE: "the inputs are strange",
        MOVED: f"classes have moved{few}",
    }[verdict.question]


def _section(verdict: Verdict, question: Question, rule: Rule) -> Section:
    title = f"{ASKS[verdict.question]} {verdict.answer[0].upper()}{verdict.answer[1:]}"
    panels = [_course(verdict, question, rule)] if len(question.points) > 1 else []
    tables = [_classes(verdict)] if verdict.classes else []
    return Section(verdict.question, title, verdict.sentences, panels, tables, listed=True)


def _course(verdict: Verdict, question: Question, rule: Rule) -> Panel:
    """Draw the evidence along the stream, and the line at which there is an alarm."""
    line = math.log10(rule.promise.enough)
    rows = [{"row": row, "evidence": round(height, 3), "alarm": round(line, 3)}
            for row, height in question.points]  # fmt: skip
    of = "labelled rows" if verdict.question != "strange" else "rows"
    x = alt.X("row:Q", title=of, axis=alt.Axis(grid=False))
    base = alt.Chart(DATA).encode(x=x)
    course = base.mark_line(color="#00548a", point=len(rows) < 20).encode(
        y=alt.Y("evidence:Q", title="evidence (powers of 10)"), tooltip=["row:Q", "evidence:Q"]
    )
    enough = base.mark_line(color="#b30000", strokeDash=[5, 4]).encode(y="alarm:Q")
    figure = Figure(
        ("evidence", verdict.question),
        "Evidence along the stream",
        sized(alt.layer(course, enough), HEIGHT),
        rows,
    )
    return Panel("The evidence of a change; above the dashed line there is an alarm.", [figure])


def _classes(verdict: Verdict) -> Table:
    """Return a table of the classes that moved."""
    rows = [
        [
            words(name),
            number(found.since, digits=0),
            number(found.rows, digits=0),
            Cell(f"{percent(found.size.low)} to {percent(found.size.high)}", found.size.share),
            Cell(percent(found.size.usual), found.size.usual),
            number(None if found.shift is None else found.shift.share, digits=1),
        ]
        for name, found in verdict.classes.items()
    ]
    header = ("class", "since its row", "rows since", "beyond its limit", "at the calibration",
              "moved, in deviations")  # fmt: skip
    caption = "Classes that moved; of all that are named, at most 5 % wrongly on average"
    return Table((MOVED,), caption, header, rows)
