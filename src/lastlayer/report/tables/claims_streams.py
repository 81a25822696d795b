"""What streams of tasks say about the paper's conclusions: the numbers, and whether they hold."""

from collections.abc import Mapping, Sequence
from math import hypot, sqrt

import polars as pl

from lastlayer.report.drift import KINDS
from lastlayer.report.looks import GRADIENT
from lastlayer.report.tables.select import STREAM

Found = tuple[str, bool] | None
SIMILAR = ("knn", "mean", "slda")


def averages(table: pl.DataFrame, names: Sequence[str], kinds: Sequence[str]) -> dict[str, float]:
    """Average heads over the streams in which all of them were run; empty where there is none."""
    part = table.filter(
        pl.col("name").is_in(names), pl.col("kind").is_in(kinds), pl.col("mean").is_not_null()
    )
    part = part.filter(pl.len().over(STREAM) == len(names))
    return dict(part.group_by("name").agg(pl.col("mean").mean()).rows())


def say(numbers: Mapping[str, float], order: Sequence[str] | None = None) -> str:
    """Write numbers out, the highest first if no order is given."""
    names = order or sorted(numbers, key=lambda name: (-numbers[name], name))
    return ", ".join(f"{name} {numbers[name]:.1f}" for name in names)


def best_layers(table: pl.DataFrame) -> Found:
    """Compare the five layers without a mask over all streams."""
    found = averages(table, GRADIENT, KINDS)
    if not found:
        return None
    ours = min(found["cosine"], found["weight_norm"])
    others = max(value for name, value in found.items() if name not in ("cosine", "weight_norm"))
    return say(found), ours > others


def drifts(table: pl.DataFrame) -> Found:
    """Compare layers in lifelong streams, and with linear in the others."""
    helping = ("linear", "weight_norm", "cosine", "linear+single", "linear+group")
    lifelong = averages(table, GRADIENT, ["lifelong"])
    others = averages(table, helping, ["incremental", "mixed"])
    if not lifelong or not others:
        return None
    managed = min(lifelong.values()) >= 2 / 3 * max(lifelong.values())
    helped = all(value > others["linear"] for name, value in others.items() if name != "linear")
    return f"lifelong: {say(lifelong)}; incremental and mixed: {say(others)}", managed and helped


def no_bias(table: pl.DataFrame) -> Found:
    """Compare linear with and without bias in every stream."""
    both = [
        table.filter(pl.col("mean").is_not_null(), name=name)
        for name in ("linear", "linear_no_bias")
    ]
    pairs = both[0].join(both[1], on=STREAM, suffix="_without").rows(named=True)
    if not pairs:
        return None
    scenarios = [pair["scenario"] for pair in pairs]
    texts, holds = [], True
    for pair in pairs:
        gap = pair["mean_without"] - pair["mean"]
        around = hypot(pair["deviation"] or 0, pair["deviation_without"] or 0)
        holds &= abs(gap) < max(0.5, 3 * around / sqrt(pair["runs"]))
        name = pair["scenario"]
        where = f" on {pair['features']}" if scenarios.count(name) > 1 else ""
        texts.append(f"{name}{where} {gap:+.2f}")
    return f"without bias minus with: {', '.join(texts)}", holds


def _masks(table: pl.DataFrame, kind: str) -> dict[str, dict[str, float]]:
    """Give mask → layer → average, over the streams of a kind that have all layers and masks."""
    names = [f"{layer}{end}" for layer in GRADIENT for end in ("", "+group", "+single")]
    found = averages(table, names, [kind])
    ends = {"none": "", "group": "+group", "single": "+single"}
    if not found:
        return {}
    return {mask: {layer: found[layer + end] for layer in GRADIENT} for mask, end in ends.items()}


def _mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / len(values)


def masks_incremental(table: pl.DataFrame) -> Found:
    """Compare masks, averaged over layers, and what single masking adds to each layer."""
    found = _masks(table, "incremental")
    if not found:
        return None
    mean = {mask: _mean(values) for mask, values in found.items()}
    gains = {layer: found["single"][layer] - found["none"][layer] for layer in GRADIENT}
    most = max(gains, key=gains.__getitem__)
    holds = mean["single"] > mean["group"] > mean["none"] and most == "cosine"
    return f"{say(mean)}; gains by single: {say(gains)}", holds


def masks_lifelong(table: pl.DataFrame) -> Found:
    """Compare masks, averaged over layers."""
    mean = {mask: _mean(values) for mask, values in _masks(table, "lifelong").items()}
    if not mean:
        return None
    return say(mean), mean["single"] < mean["none"] and abs(mean["group"] - mean["none"]) < 0.5


def similarity(table: pl.DataFrame) -> Found:
    """Compare knn, mean and slda with the average head trained by gradient, kind by kind."""
    texts, holds, sums = [], True, dict.fromkeys(SIMILAR, 0.0)
    for kind in KINDS:
        present = set(table.filter(kind=kind)["name"])
        gradient = [name for name in present if name.partition("+")[0] in GRADIENT]
        found = averages(table, [*SIMILAR, *gradient], [kind]) if gradient else {}
        if not found:
            continue
        average = sum(found[name] for name in gradient) / len(gradient)
        ours = {name: found[name] for name in SIMILAR}
        texts.append(f"{kind}: {say(ours)}, average gradient head {average:.1f}")
        holds &= min(ours.values()) > average
        sums = {name: sums[name] + ours[name] for name in SIMILAR}
    return (
        ("; ".join(texts), holds and max(sums, key=sums.__getitem__) == "slda") if texts else None
    )
