"""The paper's ten conclusions, each put to the numbers of a study."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import polars as pl

from lastlayer.report.section import Section, Tables, Topic
from lastlayer.report.sheet import Sheet, integers, rows_as, texts
from lastlayer.report.shown import Table, number, words
from lastlayer.report.topics import claim_checks
from lastlayer.report.topics.preliminary import iid
from lastlayer.report.topics.replay import replay
from lastlayer.report.topics.streams import accuracy
from lastlayer.results import Study

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not testable with this study"
MARKS = {HOLDS: "✓", FAILS: "✗", UNKNOWN: "–"}
COLUMNS = integers("number") | texts("claim", "test", "numbers", "verdict")


class Claim(NamedTuple):
    """A conclusion of the paper, and what is asked of the numbers for it to hold."""

    text: str
    test: str
    check: Callable[[pl.DataFrame], claim_checks.Found]
    about: Literal["streams", "iid", "replay"] = "streams"  # iid: all data at once


CLAIMS = (
    Claim(
        "Coslayer and WeightNorm are the best reparameterisations overall.",
        "Without a mask, both are above every other gradient layer on average over all streams.",
        claim_checks.best_layers,
    ),
    Claim(
        "All layers manage lifelong drift; in incremental and mixed drift only layers based on "
        "angles, and masking, help.",
        "Without a mask, the worst gradient layer reaches two thirds of the best one in lifelong, "
        "and weight_norm, cosine, linear+single and linear+group are above linear elsewhere.",
        claim_checks.drifts,
    ),
    Claim(
        "Removing the bias has no effect.",
        "linear and linear_no_bias differ by less than max(0.5, 3·√((s² + s²)/n)) points in every "
        "stream.",
        claim_checks.no_bias,
    ),
    Claim(
        "Masking helps in incremental scenarios, single masking most; Coslayer gains most.",
        "On average over layers single > group > none, and single masking raises cosine most.",
        claim_checks.masks_incremental,
    ),
    Claim(
        "In lifelong scenarios masking does not help: group equals none, single harms.",
        "On average over layers single is below none, and group is within 0.5 points of none.",
        claim_checks.masks_lifelong,
    ),
    Claim(
        "Similarity-based layers do well whatever the drift, SLDA most.",
        "In every kind of drift knn, mean and slda are above the average gradient head, and slda "
        "is the best of them on average.",
        claim_checks.similarity,
    ),
    Claim(
        "Masking does not work i.i.d., except for Coslayer.",
        "On average over data sets and sizes, all data among them, single masking raises cosine "
        "and lowers every other gradient layer.",
        claim_checks.masks_iid,
        about="iid",
    ),
    Claim(
        "WeightNorm and Coslayer_Masked stay competitive with little data; plain linear is good "
        "i.i.d.",
        "On average over subsets of at most 1000 samples weight_norm, cosine+single and linear are "
        "within 5 points of the best gradient head.",
        claim_checks.little_data,
        about="iid",
    ),
    Claim(
        "Similarity-based layers fall slightly behind with little data.",
        "On average over subsets of at most 1000 samples the best of knn, mean and slda is below "
        "the best gradient head, by at most 10 points.",
        claim_checks.similarity_behind,
        about="iid",
    ),
    Claim(
        "Group masking improves replay, most at low replay balance.",
        "Of networks trained end to end, group masking raises every layer at the lowest replay "
        "balance, on average over layers at every balance, and there most at the lowest.",
        claim_checks.group_masking,
        about="replay",
    ),
)


def judge(
    accuracy: pl.DataFrame, iid: pl.DataFrame, replay: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Say of each conclusion whether it holds, with the numbers that say so.

    Args:
        accuracy: final accuracies on streams, in percent.
        iid: accuracies on all data at once and on subsets.
        replay: accuracies of networks trained end to end, where there are some.
    """
    tables = {"streams": accuracy, "iid": iid, "replay": replay}
    rows = []
    for n, claim in enumerate(CLAIMS, start=1):
        table = tables[claim.about]
        found = None if table is None else claim.check(table)
        numbers, holds = found or ("", None)
        verdict = UNKNOWN if holds is None else HOLDS if holds else FAILS
        rows.append((n, claim.text, claim.test, numbers, verdict))
    return rows_as(COLUMNS, rows)


def claims(study: Study) -> pl.DataFrame:
    """Judge the conclusions by the numbers of a study."""
    return judge(accuracy(study), iid(study), replay(study))


SHEET = Sheet("claims", COLUMNS, claims)


def section(tables: Tables) -> Section | None:
    """Return the ten conclusions with our numbers, where at least one can be tested."""
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
    shown = Table(("claims",), "The paper's conclusions and this study.", header, rows)
    return Section("claims", "What the paper concludes", [text], (), [shown])


TOPIC = Topic(section, needs=[SHEET])
