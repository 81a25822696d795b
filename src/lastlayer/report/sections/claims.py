"""The paper's conclusions, and whether they hold here."""

from lastlayer.report.section import Section, Tables
from lastlayer.report.shown import Table, number, words
from lastlayer.report.tables.claims import FAILS, HOLDS, UNKNOWN

MARKS = {HOLDS: "✓", FAILS: "✗", UNKNOWN: "–"}


def claims(tables: Tables) -> Section | None:
    """Give the ten conclusions with our numbers, where at least one can be tested."""
    table = tables["claims"]
    counts = {verdict: table.filter(verdict=verdict).height for verdict in (HOLDS, FAILS, UNKNOWN)}
    if not counts[HOLDS] + counts[FAILS]:
        return None
    rows = [
        [number(row["number"], digits=0), words(row["claim"]), words(row["test"]),
         words(row["numbers"]), words(f"{MARKS[row['verdict']]} {row['verdict']}")]
        for row in table.iter_rows(named=True)
    ]  # fmt: skip
    text = (
        f"Of the paper's ten conclusions, as they are tested here, {counts[HOLDS]} hold, "
        f"{counts[FAILS]} do not, and {counts[UNKNOWN]} cannot be tested with this study. "
        "An average is over the streams or data sets in which all of its heads were run."
    )
    header = ("no.", "the paper concludes", "it holds here if", "our numbers, in %", "verdict")
    shown = Table("claims", "The paper's conclusions and this study.", header, rows)
    return Section("claims", "What the paper concludes", [text], (), [shown])
