"""What data without drift say about the paper's conclusions: the numbers, and whether they hold."""

import polars as pl

from lastlayer.report.looks import GRADIENT
from lastlayer.report.tables.claims_streams import SIMILAR, Found, say
from lastlayer.report.tables.select import own_rate

LITTLE = 1000  # samples, at most
SET = ("features", "label")


def masks(table: pl.DataFrame) -> Found:
    """Compare each gradient layer without and with single masking, over all sizes."""
    names = [f"{layer}{end}" for layer in GRADIENT for end in ("", "+single")]
    found = _averages(table, names)
    if not found:
        return None
    gains = {layer: found[f"{layer}+single"] - found[layer] for layer in GRADIENT}
    others = [gain for layer, gain in gains.items() if layer != "cosine"]
    return f"gains by single masking: {say(gains)}", max(others) < 0 < gains["cosine"]


def little_data(table: pl.DataFrame) -> Found:
    """Compare weight_norm, cosine+single and linear with the best gradient head."""
    little = {n: v for n, v in _little(table).items() if n.partition("+")[0] in GRADIENT}
    ours = ("weight_norm", "cosine+single", "linear")
    if not all(name in little for name in ours):
        return None
    best = max(little, key=little.__getitem__)
    holds = little[best] - min(little[name] for name in ours) <= 5
    return say(little, list(dict.fromkeys([best, *ours]))), holds


def similarity_behind(table: pl.DataFrame) -> Found:
    """Compare the best of knn, mean and slda with the best gradient head on little data."""
    little = _little(table)
    gradient = [name for name in little if name.partition("+")[0] in GRADIENT]
    similar = [name for name in SIMILAR if name in little]
    if not gradient or len(similar) < len(SIMILAR):
        return None
    best = max(gradient, key=little.__getitem__)
    gap = little[best] - max(little[name] for name in similar)
    return say(little, [best, *similar]), 0 < gap <= 10


def _little(table: pl.DataFrame) -> dict[str, float]:
    part = table.filter(pl.col("subset") <= LITTLE)
    return _averages(part, part["name"].unique().to_list())


def _averages(table: pl.DataFrame, names: list[str]) -> dict[str, float]:
    """Average heads over sizes and the data sets that have all of them."""
    part = table.filter(pl.col("name").is_in(names), pl.col("mean").is_not_null())
    within = (*SET, "preset", "subset")
    part = own_rate(part.rename({"mean": "final"}), within)
    part = part.filter(pl.col("name").n_unique().over(SET, "subset") == len(names))
    return dict(part.group_by("name").agg(pl.col("final").mean()).rows())
