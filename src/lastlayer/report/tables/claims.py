"""The paper's ten conclusions, each put to the numbers of a study."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import polars as pl

from lastlayer.report.tables import claims_iid, claims_replay, claims_streams

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not testable with this study"


class Claim(NamedTuple):
    """A conclusion of the paper, and what is asked of the numbers for it to hold."""

    text: str
    test: str
    check: Callable[[pl.DataFrame], tuple[str, bool] | None]
    about: Literal["streams", "iid", "replay"] = "streams"  # iid: all data at once


CLAIMS = (
    Claim(
        "Coslayer and WeightNorm are the best reparameterisations overall.",
        "Without a mask, both are above every other gradient layer on average over all streams.",
        claims_streams.best_layers,
    ),
    Claim(
        "All layers manage lifelong drift; in incremental and mixed drift only layers based on "
        "angles, and masking, help.",
        "Without a mask, the worst gradient layer reaches two thirds of the best one in lifelong, "
        "and weight_norm, cosine, linear+single and linear+group are above linear elsewhere.",
        claims_streams.drifts,
    ),
    Claim(
        "Removing the bias has no effect.",
        "linear and linear_no_bias differ by less than max(0.5, 3·√((s² + s²)/n)) points in every "
        "stream.",
        claims_streams.no_bias,
    ),
    Claim(
        "Masking helps in incremental scenarios, single masking most; Coslayer gains most.",
        "On average over layers single > group > none, and single masking raises cosine most.",
        claims_streams.masks_incremental,
    ),
    Claim(
        "In lifelong scenarios masking does not help: group equals none, single harms.",
        "On average over layers single is below none, and group is within 0.5 points of none.",
        claims_streams.masks_lifelong,
    ),
    Claim(
        "Similarity-based layers do well whatever the drift, SLDA most.",
        "In every kind of drift knn, mean and slda are above the average gradient head, and slda "
        "is the best of them on average.",
        claims_streams.similarity,
    ),
    Claim(
        "Masking does not work i.i.d., except for Coslayer.",
        "On average over data sets and sizes, all data among them, single masking raises cosine "
        "and lowers every other gradient layer.",
        claims_iid.masks,
        about="iid",
    ),
    Claim(
        "WeightNorm and Coslayer_Masked stay competitive with little data; plain linear is good "
        "i.i.d.",
        "On average over subsets of at most 1000 samples weight_norm, cosine+single and linear are "
        "within 5 points of the best gradient head.",
        claims_iid.little_data,
        about="iid",
    ),
    Claim(
        "Similarity-based layers fall slightly behind with little data.",
        "On average over subsets of at most 1000 samples the best of knn, mean and slda is below "
        "the best gradient head, by at most 10 points.",
        claims_iid.similarity_behind,
        about="iid",
    ),
    Claim(
        "Group masking improves replay, most at low replay balance.",
        "Of networks trained end to end, group masking raises every layer at the lowest replay "
        "balance, on average over layers at every balance, and there most at the lowest.",
        claims_replay.group_masking,
        about="replay",
    ),
)


def claims(
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
    for number, claim in enumerate(CLAIMS, start=1):
        table = tables[claim.about]
        found = None if table is None else claim.check(table)
        numbers, holds = found or ("", None)
        verdict = UNKNOWN if holds is None else HOLDS if holds else FAILS
        rows.append((number, claim.text, claim.test, numbers, verdict))
    texts = dict.fromkeys(("claim", "test", "numbers", "verdict"), pl.String)
    return pl.DataFrame(rows, schema={"number": pl.Int64, **texts}, orient="row")
