"""What networks trained end to end say about the paper's last conclusion."""

import polars as pl

from lastlayer.report.tables.claims_streams import Found
from lastlayer.report.tables.select import STREAM

CELL = (*STREAM, "setting", "balance", "head")


def group_masking(table: pl.DataFrame) -> Found:
    """Compare group masking with none at each replay balance, layer by layer and on average."""
    known = table.drop_nulls("mean")
    plain, group = (known.filter(mask=mask) for mask in ("none", "group"))
    gain = (pl.col("mean") - pl.col("mean_plain")).alias("gain")
    pairs = group.join(plain, on=CELL, suffix="_plain").with_columns(gain)
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
