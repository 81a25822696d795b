"""What a study says about the paper's conclusions: the numbers, and whether they hold.

Only the paper's heads are asked, whatever else a study contains.
"""

from collections.abc import Mapping, Sequence
from math import hypot, sqrt

import polars as pl

from lastlayer.catalogue import PAPER_HEADS
from lastlayer.report.drift import MEANING
from lastlayer.report.looks import paper_layers
from lastlayer.report.select import STREAM, own_rate

Found = tuple[str, bool] | None
SIMILAR = ("knn", "mean", "slda")
LITTLE = 1000  # samples, at most
SET = ("features", "label")


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


def _gradient() -> list[str]:
    return paper_layers(by_gradient=True)


def best_layers(table: pl.DataFrame) -> Found:
    """Compare the five layers without a mask over all streams."""
    found = averages(table, _gradient(), list(MEANING))
    if not found:
        return None
    ours = min(found["cosine"], found["weight_norm"])
    others = max(value for name, value in found.items() if name not in ("cosine", "weight_norm"))
    return say(found), ours > others


def drifts(table: pl.DataFrame) -> Found:
    """Compare layers in lifelong streams, and with linear in the others."""
    helping = ("linear", "weight_norm", "cosine", "linear+single", "linear+group")
    lifelong = averages(table, _gradient(), ["lifelong"])
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
    """Return mask → layer → average, over the streams of a kind that have all layers and masks."""
    names = [f"{layer}{end}" for layer in _gradient() for end in ("", "+group", "+single")]
    found = averages(table, names, [kind])
    ends = {"none": "", "group": "+group", "single": "+single"}
    if not found:
        return {}
    return {
        mask: {layer: found[layer + end] for layer in _gradient()} for mask, end in ends.items()
    }


def _mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / len(values)


def masks_incremental(table: pl.DataFrame) -> Found:
    """Compare masks, averaged over layers, and what single masking adds to each layer."""
    found = _masks(table, "incremental")
    if not found:
        return None
    mean = {mask: _mean(values) for mask, values in found.items()}
    gains = {layer: found["single"][layer] - found["none"][layer] for layer in _gradient()}
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
    for kind in MEANING:
        present = set(table.filter(kind=kind)["name"])
        gradient = [name for name in present if name.partition("+")[0] in _gradient()]
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


def masks_iid(table: pl.DataFrame) -> Found:
    """Compare each gradient layer without and with single masking, over all sizes."""
    names = [f"{layer}{end}" for layer in _gradient() for end in ("", "+single")]
    found = _averages_iid(table, names)
    if not found:
        return None
    gains = {layer: found[f"{layer}+single"] - found[layer] for layer in _gradient()}
    others = [gain for layer, gain in gains.items() if layer != "cosine"]
    return f"gains by single masking: {say(gains)}", max(others) < 0 < gains["cosine"]


def little_data(table: pl.DataFrame) -> Found:
    """Compare weight_norm, cosine+single and linear with the best gradient head."""
    little = {n: v for n, v in _little(table).items() if n.partition("+")[0] in _gradient()}
    ours = ("weight_norm", "cosine+single", "linear")
    if not all(name in little for name in ours):
        return None
    best = max(little, key=little.__getitem__)
    holds = little[best] - min(little[name] for name in ours) <= 5
    return say(little, list(dict.fromkeys([best, *ours]))), holds


def similarity_behind(table: pl.DataFrame) -> Found:
    """Compare the best of knn, mean and slda with the best gradient head on little data."""
    little = _little(table)
    gradient = [name for name in little if name.partition("+")[0] in _gradient()]
    similar = [name for name in SIMILAR if name in little]
    if not gradient or len(similar) < len(SIMILAR):
        return None
    best = max(gradient, key=little.__getitem__)
    gap = little[best] - max(little[name] for name in similar)
    return say(little, [best, *similar]), 0 < gap <= 10


def _little(table: pl.DataFrame) -> dict[str, float]:
    part = table.filter(pl.col("subset") <= LITTLE, pl.col("name").is_in(PAPER_HEADS))
    return _averages_iid(part, part["name"].unique().to_list())


def _averages_iid(table: pl.DataFrame, names: list[str]) -> dict[str, float]:
    """Average heads over sizes and the data sets that have all of them."""
    part = table.filter(pl.col("name").is_in(names), pl.col("mean").is_not_null())
    within = (*SET, "preset", "subset")
    part = own_rate(part.rename({"mean": "final"}), within)
    part = part.filter(pl.col("name").n_unique().over(SET, "subset") == len(names))
    return dict(part.group_by("name").agg(pl.col("final").mean()).rows())


def group_masking(table: pl.DataFrame) -> Found:
    """Compare group masking with none at each replay balance, layer by layer and on average."""
    known = table.drop_nulls("mean").filter(pl.col("head").is_in(_gradient()))
    plain, group = (known.filter(mask=mask) for mask in ("none", "group"))
    gain = (pl.col("mean") - pl.col("mean_plain")).alias("gain")
    pairs = group.join(
        plain, on=[*STREAM, "setting", "balance", "head"], suffix="_plain"
    ).with_columns(gain)
    parts = pairs.partition_by("setting", as_dict=True)
    found = {key[0]: told for key, part in parts.items() if (told := _in_one_setting(part))}
    if not found:
        return None
    texts = [f"{name}: {text}" if len(found) > 1 else text for name, (text, _) in found.items()]
    return f"gains by group masking: {'; '.join(texts)}", all(h for _, h in found.values())


def _in_one_setting(pairs: pl.DataFrame) -> Found:
    averages = pairs.group_by("balance").agg(pl.col("gain").mean()).sort("balance")
    if averages.height < 2:
        return None
    lowest, *others = averages["gain"]
    at_lowest = pairs.filter(pl.col("balance") == pl.col("balance").min())["gain"].to_list()
    text = ", ".join(f"balance {balance:g}: {gain:+.2f}" for balance, gain in averages.rows())
    return text, min(at_lowest) > 0 and min(others) > 0 and lowest > max(others)
