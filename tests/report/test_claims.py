"""The paper's conclusions: its own numbers pass the tests they are put to, others fail them."""

import polars as pl
import pytest

from lastlayer.catalogue import full_name
from lastlayer.report.looks import paper_layers
from lastlayer.report.published import published
from lastlayer.report.topics import claim_checks
from lastlayer.report.topics.claims import FAILS, HOLDS, UNKNOWN, judge

GRADIENT = paper_layers(by_gradient=True)
TEXTS = ("features", "scenario", "label", "kind", "preset", "head", "mask", "name")
NUMBERS = {"lr": pl.Float64, "subset": pl.Int64, "mean": pl.Float64, "deviation": pl.Float64}
NONE = pl.DataFrame(schema={**dict.fromkeys(TEXTS, pl.String), **NUMBERS, "runs": pl.Int64})


@pytest.fixture(scope="module")
def paper() -> pl.DataFrame:
    table = published().filter(pl.col("std") < 5, pl.col("experiment") == "subset")
    names = [full_name(head, mask) for head, mask in table.select("head", "mask").rows()]
    return table.with_columns(pl.Series("name", names), pl.lit("paper").alias("preset"))


@pytest.mark.parametrize("number", ["masks_iid", "little_data", "similarity_behind"])
def test_the_published_numbers_bear_out_what_the_paper_says_of_them(
    paper: pl.DataFrame, number: str
) -> None:
    found = getattr(claim_checks, number)(paper)
    assert found is not None
    assert found[1]


def test_without_numbers_nothing_can_be_said() -> None:
    assert set(judge(NONE, NONE)["verdict"]) == {UNKNOWN}


def streams(**means: float) -> pl.DataFrame:
    """Give streams "kind: head" → accuracy; single, group stand for the masks."""
    rows = []
    for key, mean in means.items():
        kind, _, name = key.partition("__")
        head, _, mask = name.partition("__")
        row = {"features": "f", "scenario": kind, "label": "y", "kind": kind, "preset": "paper"}
        row |= {"head": head, "mask": mask or "none", "name": full_name(head, mask or "none")}
        rows.append(row | {"mean": mean, "deviation": 0.1, "runs": 8})
    return pl.DataFrame(rows, schema_overrides=dict(NONE.schema))


def layers(kind: str, none: float, group: float, single: float, cosine: float) -> dict[str, float]:
    """All layers alike, but for cosine with single masking."""
    ends = {"": none, "__group": group, "__single": single}
    table = {f"{kind}__{layer}{end}": mean for layer in GRADIENT for end, mean in ends.items()}
    return table | {f"{kind}__cosine__single": cosine}


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [((20, 40, 50, 60), True), ((20, 50, 40, 60), False), ((20, 40, 50, 45), False)],
)
def test_masks_in_incremental(numbers: tuple[float, ...], verdict: bool) -> None:
    found = claim_checks.masks_incremental(streams(**layers("incremental", *numbers)))
    assert found is not None
    assert found[1] is verdict


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [((60, 60.2, 40, 40), True), ((60, 58, 40, 40), False), ((60, 60, 65, 65), False)],
)
def test_masks_in_lifelong(numbers: tuple[float, ...], verdict: bool) -> None:
    found = claim_checks.masks_lifelong(streams(**layers("lifelong", *numbers)))
    assert found is not None
    assert found[1] is verdict


@pytest.mark.parametrize(("cosine", "verdict"), [(35, True), (25, False)])
def test_best_layers(cosine: float, verdict: bool) -> None:
    means = dict(zip(GRADIENT, (20, 20, 40, 30, cosine), strict=True))
    found = claim_checks.best_layers(streams(**{f"mixed__{k}": v for k, v in means.items()}))
    assert found is not None
    assert found[0].startswith("weight_norm 40.0, ")
    assert found[1] is verdict


@pytest.mark.parametrize(("gap", "verdict"), [(0.4, True), (0.6, False)])
def test_no_bias(gap: float, verdict: bool) -> None:
    both = streams(incremental__linear=20.0, incremental__linear_no_bias=20.0 + gap)
    assert claim_checks.no_bias(both) == (
        f"without bias minus with: incremental {gap:+.2f}", verdict,
    )  # fmt: skip


@pytest.mark.parametrize(("gap", "verdict"), [(0.4, True), (0.6, False)])
def test_no_bias_on_two_feature_sets(gap: float, verdict: bool) -> None:
    first = streams(mixed__linear=20.0, mixed__linear_no_bias=20.0)
    other = streams(mixed__linear=20.0, mixed__linear_no_bias=20.0 + gap)
    both = pl.concat([other.with_columns(pl.lit("g").alias("features")), first])
    found = claim_checks.no_bias(both)
    assert found is not None
    assert sorted(found[0].partition(": ")[2].split(", ")) == [
        "mixed on f +0.00", f"mixed on g {gap:+.2f}",
    ]  # fmt: skip
    assert found[1] is verdict


@pytest.mark.parametrize(
    ("worst", "helped", "verdict"), [(50, 30, True), (20, 30, False), (50, 10, False)]
)
def test_drifts(worst: float, helped: float, verdict: bool) -> None:
    means = layers("lifelong", 60, 60, 60, 60) | {"lifelong__linear": worst}
    helping = ("weight_norm", "cosine", "linear__single", "linear__group")
    means |= {f"mixed__{name}": helped for name in helping}
    found = claim_checks.drifts(streams(**means, mixed__linear=20))
    assert found is not None
    assert found[1] is verdict


@pytest.mark.parametrize(
    ("knn", "slda", "verdict"), [(60, 70, True), (40, 70, False), (80, 70, False)]
)
def test_similarity(knn: float, slda: float, verdict: bool) -> None:
    table = streams(mixed__linear=50, mixed__knn=knn, mixed__mean=65, mixed__slda=slda)
    found = claim_checks.similarity(table)
    assert found is not None
    assert found[1] is verdict


def test_verdicts_in_words() -> None:
    table = judge(streams(**layers("lifelong", 60, 60, 40, 40)), NONE)
    verdicts = dict(table.select("number", "verdict").rows())
    assert (verdicts[5], verdicts[1], verdicts[10]) == (HOLDS, FAILS, UNKNOWN)
    assert table["claim"].len() == 10
