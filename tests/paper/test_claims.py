"""The paper's conclusions: three verdicts from planted numbers, and each test against its words."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from lastlayer.paper.claim_checks import (
    Found,
    Numbers,
    best_layers,
    drifts,
    first_task,
    five_epochs,
    group_masking,
    little_data,
    masks_iid,
    masks_incremental,
    masks_lifelong,
    no_bias,
    recommendation,
    similarity,
    similarity_behind,
)
from lastlayer.paper.claims import CLAIMS, UNKNOWN, claim_parts, claims, judge_replay, section
from lastlayer.results import load_study as load
from made_up import CIFAR100, LAYERS, STARTED, Stream, iid, write_study

HOLDS, FAILS, CLOSE = "holds", "does not hold", "too close to call"
KINDS = ("incremental", "mixed", "lifelong")
ENDS = ("", "+single", "+group")
ALL = {f"{layer}{end}": 50.0 for layer in LAYERS for end in ENDS}
HELPING = ("weight_norm", "cosine", "linear+single", "linear+group")
OTHERS = {"knn": 50.0, "mean": 50.0, "slda": 50.0}


def values(mean: float, noise: float = 0.0, seed: int = 0) -> dict[int, float]:
    """Eight orders around a mean."""
    around = np.random.default_rng(seed).normal(size=8)
    return dict(enumerate(mean + noise * (around - around.mean())))


def places(heads: Mapping[str, float], noise: float = 0.0) -> dict[str, dict[int, float]]:
    return {name: values(mean, noise, seed) for seed, (name, mean) in enumerate(heads.items())}


def streams(noise: float = 0.0, **kinds: Mapping[str, float]) -> Numbers:
    """All heads at 50 in each kind, but for what is said."""
    return Numbers(
        {kind: {(kind,): places(ALL | OTHERS | kinds.get(kind, {}), noise)} for kind in KINDS},
        {("set", size): places(ALL | OTHERS | kinds.get("little", {}), noise) for size in "12"}
        | {("set", "all"): places(ALL | kinds.get("all", {}), noise)},
    )


def everywhere(**heads: float) -> Numbers:
    named = {name.replace("__", "+"): value for name, value in heads.items()}
    return streams(**dict.fromkeys((*KINDS, "little"), named))


def verdict(found: Found) -> str | None:
    return None if found is None else found.verdict


@pytest.mark.parametrize(
    ("gap", "noise", "expected"), [(0.0, 0.05, HOLDS), (3.0, 0.5, FAILS), (0.4, 3.0, CLOSE)]
)
def test_a_claim_is_true_false_or_within_the_noise(gap: float, noise: float, expected: str) -> None:
    """Planted: removing the bias changes nothing, three points, or less than the noise tells."""
    numbers = streams(noise, incremental={"linear_no_bias": 50 + gap})
    assert verdict(no_bias(numbers)) == expected


@pytest.mark.parametrize(
    ("gain", "noise", "expected"), [(5.0, 0.5, HOLDS), (-5.0, 0.5, FAILS), (0.5, 3.0, CLOSE)]
)
def test_the_same_from_the_runs_of_a_study(
    gain: float, noise: float, expected: str, tmp_path: Path
) -> None:
    """Planted into a results file: cosine and weight_norm against the other layers."""
    rng = np.random.default_rng(0)
    places_ = (("cifar10", "cifar10/resnet20-cifar100"), ("cifar100_lifelong", CIFAR100),
               ("cifar100_mix", CIFAR100), ("cifar100", CIFAR100))  # fmt: skip
    study = [
        Stream(
            scenario,
            features,
            heads=(layer,),
            orders=(order,),
            extra={
                "final": 0.5
                + (layer in ("cosine", "weight_norm")) * gain / 100
                - 0.4 * (scenario == "cifar100" and layer == "cosine")
                + noise / 100 * rng.normal()
            },
        )
        for scenario, features in places_
        for layer in LAYERS
        for order in range(8)
    ]
    table = claims(load(write_study(tmp_path, study)))
    first = table.filter(number=1, setting="uniform start")
    assert first["verdict"].to_list() == [expected]
    with_ours = table.filter(number=1, setting="uniform start, cifar100 too")
    assert with_ours["counts"].to_list() == [False]  # shown beside, in no verdict
    assert table.filter(number=1, setting="normal start")["verdict"].to_list() == [UNKNOWN]
    assert table.filter(number=4)["verdict"].to_list()[:2] == [UNKNOWN, UNKNOWN]


def test_every_comparison_is_kept(tmp_path: Path) -> None:
    folder = write_study(tmp_path, [Stream(orders=range(3))])
    parts = claim_parts(load(folder)).filter(claim="3", counts=True)
    assert parts["part"].to_list() == ["cifar10: without − with bias"]
    assert parts["pairs"].to_list() == [3]
    runs = load(folder).done.filter(mask="none")
    means = dict(runs.group_by("head").agg(pl.col("final").mean()).rows())
    gap = 100 * (means["linear_no_bias"] - means["linear"])
    assert parts["mean"].to_list() == pytest.approx([gap])


def test_masks_are_compared_within_one_start(tmp_path: Path) -> None:
    """linear is 10 points better from the normal start; single masking does nothing."""
    study = [
        Stream(
            heads=(f"{layer}{end}",),
            orders=range(8),
            start=start,
            extra={"final": 0.5 + 0.1 * (start == "normal") * (layer in STARTED)},
        )
        for layer in LAYERS
        for end in ENDS
        for start in ("uniform", "normal")
        if end != "+group" or start == "uniform"  # group was not run from the normal start
    ]
    parts = claim_parts(load(write_study(tmp_path, study)))
    masks = parts.filter(pl.col("part").str.contains("single − group"))
    assert masks["setting"].to_list() == ["uniform start"]
    assert masks["mean"].to_list() == pytest.approx([0.0])


def test_without_numbers_nothing_can_be_said(tmp_path: Path) -> None:
    study = load(write_study(tmp_path, [iid("mine", "class", 4, heads=("mean",))]))
    table = claims(study)
    assert set(table["verdict"]) == {UNKNOWN}
    assert table["number"].drop_nulls().unique().to_list() == list(range(1, len(CLAIMS) + 1))


def test_where_only_small_checks_can_be_told_the_section_says_so_and_shows_them_alone(
    tmp_path: Path,
) -> None:
    untold = claims(load(write_study(tmp_path, [iid("mine", "class", 4, heads=("mean",))])))
    check = pl.col("number").is_null() & pl.col("counts")
    told = pl.when(check).then(pl.lit(CLOSE)).otherwise("verdict").alias("verdict")
    assert section({"claims": untold}) is None
    found = section({"claims": untold.with_columns(told)})
    assert found is not None
    assert found.words[0].startswith("This study can tell none of the paper's conclusions")
    assert {row[0].text for row in found.tables[0].rows} == {"check"}


CASES: list[tuple[Callable[[Numbers], Found], Numbers, str | None]] = [
    (best_layers, everywhere(cosine=60, weight_norm=60), HOLDS),
    (best_layers, everywhere(cosine=60, weight_norm=40), FAILS),
    (best_layers, everywhere(cosine=60, weight_norm=50.3), FAILS),  # half a point is no difference
    (best_layers, Numbers(), None),
    # Over kinds: 20 points in one of three and −2 in the others still hold.
    (
        best_layers,
        streams(
            incremental={"cosine": 70, "weight_norm": 70},
            mixed={"cosine": 48, "weight_norm": 48},
            lifelong={"cosine": 48, "weight_norm": 48},
        ),
        HOLDS,
    ),
    (
        drifts,
        streams(
            incremental=dict.fromkeys(HELPING, 60.0),
            mixed=dict.fromkeys(HELPING, 60.0),
        ),
        HOLDS,
    ),
    (drifts, everywhere(), FAILS),  # nothing helps
    (drifts, streams(lifelong={"linear": 30}), FAILS),
    (no_bias, everywhere(), HOLDS),
    (no_bias, streams(mixed={"linear_no_bias": 51}), FAILS),
    (
        masks_incremental,
        streams(
            incremental={f"{layer}+group": 55 for layer in LAYERS}
            | {f"{layer}+single": 60 for layer in LAYERS}
            | {"cosine+single": 70}
        ),
        HOLDS,
    ),
    (
        masks_incremental,
        streams(
            incremental={f"{layer}+group": 55 for layer in LAYERS}
            | {f"{layer}+single": 60 for layer in LAYERS}
        ),
        FAILS,  # cosine gains no more than the others
    ),
    (masks_lifelong, streams(lifelong={f"{layer}+single": 40 for layer in LAYERS}), HOLDS),
    (masks_lifelong, everywhere(), FAILS),
    (similarity, everywhere(slda=60), HOLDS),
    (similarity, everywhere(slda=60, weight_norm=56), FAILS),  # knn is 6 below the best
    (similarity, everywhere(slda=50), FAILS),
    (
        masks_iid,
        streams(
            little={f"{x}+single": 40 for x in LAYERS if x != "cosine"},
            all={f"{x}+single": 40 for x in LAYERS if x != "cosine"},
        ),
        HOLDS,
    ),
    (masks_iid, everywhere(), FAILS),
    (little_data, everywhere(), HOLDS),
    (little_data, everywhere(cosine=56), FAILS),
    (similarity_behind, everywhere(weight_norm=55), HOLDS),
    (similarity_behind, everywhere(weight_norm=65), FAILS),
    (similarity_behind, everywhere(), FAILS),
    (recommendation, everywhere(), HOLDS),
    (recommendation, everywhere(weight_norm=60), HOLDS),
    (recommendation, streams(incremental={"cosine+single": 60}), HOLDS),
    (recommendation, streams(lifelong={"cosine+single": 60}), FAILS),
    (recommendation, streams(mixed={"linear+group": 60}), FAILS),
]


@pytest.mark.parametrize(("check", "numbers", "expected"), CASES)
def test_each_claim(check: Callable[[Numbers], Found], numbers: Numbers, expected: str) -> None:
    assert verdict(check(numbers)) == expected


@pytest.mark.parametrize(("single", "expected"), [(50, HOLDS), (40, FAILS)])
def test_the_first_task_in_lifelong(single: float, expected: str) -> None:
    heads = ALL | {f"{layer}+single": single for layer in LAYERS}
    numbers = Numbers(first_task={"lifelong": {("s",): places(heads)}})
    assert verdict(first_task(numbers)) == expected


@pytest.mark.parametrize(("fifth", "expected"), [(50.2, HOLDS), (52, FAILS)])
def test_five_epochs(fifth: float, expected: str) -> None:
    heads = {f"{layer}, epoch {n}": 50 + (n - 4) * (fifth - 50) for layer in LAYERS for n in (4, 5)}
    assert verdict(five_epochs(Numbers(by_epoch={("set",): places(heads)}))) == expected


def networks(layer: str, gains: Mapping[float, float], noise: float = 0.02) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rows = [
        {"balance": balance, "head": layer, "mask": mask, "seed": seed,
         "final": 0.5 + (gain * (mask == "group") + noise * rng.normal()) / 100}
        for balance, gain in gains.items() for mask in ("none", "group") for seed in range(3)
    ]  # fmt: skip
    return pl.DataFrame(rows)


@pytest.mark.parametrize(
    ("gains", "noise", "expected"),
    [
        ({0.01: 9, 0.1: 3, 1.0: 0}, 0.02, HOLDS),
        ({0.01: 9, 0.1: -9, 1.0: 0}, 0.02, FAILS),
        ({0.01: 2, 0.1: 9, 1.0: 9}, 0.02, FAILS),
        ({0.01: 2, 0.1: 1, 1.0: 0}, 3.0, CLOSE),
    ],
)
def test_replay(gains: dict[float, float], noise: float, expected: str) -> None:
    found = group_masking(networks("weight_norm", gains, noise))
    assert found is not None
    assert found.verdict == expected
    alone = networks("linear", gains, noise)
    assert group_masking(alone) is None  # the text speaks of WeightNorm
    both = group_masking(pl.concat([networks("weight_norm", gains, noise), alone]))
    assert both is not None
    assert both.verdict == expected
    assert [part.counts for part in both.parts].count(True) == len(found.parts)


def test_replay_is_judged_setting_by_setting() -> None:
    rules = {"features": "f", "scenario": "s", "per_class": 5, "batch_size": 8, "lr": 0.001}
    parts = [
        networks("weight_norm", gains).with_columns(
            pl.lit(epochs).alias("epochs"),
            pl.lit("adam").alias("optimizer"),
            *(pl.lit(value).alias(name) for name, value in rules.items()),
        )
        for epochs, gains in ((5, {0.01: 9.0, 1.0: 0.0}), (20, {0.01: 0.0, 1.0: 9.0}))
    ]
    found = {row[2]: row[4].verdict for row in judge_replay(pl.concat(parts)) if row[4]}
    assert found == {
        "20 epochs a task, 5 remembered of a class, batch 8, adam at 0.001": FAILS,
        "5 epochs a task, 5 remembered of a class, batch 8, adam at 0.001": HOLDS,
    }
    (empty,) = judge_replay(pl.DataFrame())
    assert empty[4] is None
