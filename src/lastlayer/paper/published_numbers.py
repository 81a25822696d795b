"""The paper's tables in our names, and when one of our numbers agrees with one of them."""

from math import hypot, sqrt
from numbers import Real
from pathlib import Path
from typing import Literal, NamedTuple

import polars as pl

from lastlayer.catalogue.head_cards import CODES, HEADS, PAPER_HEADS
from lastlayer.core.checks import expect
from lastlayer.errors import DataError
from lastlayer.report.data_names import PAPER_BACKBONES, PAPER_DATA

Verdict = Literal["agrees", "differs", "wide"]

SELECTED = {  # the learning rates that the text selects, for every mask
    "linear": 0.01,
    "linear_no_bias": 0.01,
    "weight_norm": 0.1,
    "original_weight_norm": 0.1,
    "cosine": 0.1,
}


class Block(NamedTuple):
    """Published numbers that one state of the authors' code is taken to have made."""

    name: str
    code: str  # one of CODES
    why: str


RELEASE = "its scripts and data are in the release of 3 August 2021"
ALL_DATA = Block("all data, no mask", "may", RELEASE)
SUBSETS = Block("subsets", "may", RELEASE)
MASKED = Block(
    "CIFAR10, all data, single mask", "september",
    "from the numbers alone: no script of the release trains these",
)  # fmt: skip
COARSE = Block(
    "CIFAR100Lifelong", "september", "it was added on 28 September 2021, after both changes"
)  # fmt: skip
BIRDS = Block("CUB200", "september", "it was added on 27 September 2021, after both changes")


def block_of(features: str, label: str, mask: str, subset: int | None) -> Block:
    """Return the code assumed to have made a published number: one for a block, none for a row.

    Git shows which code existed; which made a number is inferred (docs/decisions/9). The plan
    "paper" names the same code for the same block.

    >>> block_of("cifar100/resnet20-cifar100", "coarse", "none", 100).code
    'september'
    """
    data = features.partition("/")[0]
    if data == "cub200":
        return BIRDS
    if label == "coarse":
        return COARSE
    if subset is not None:
        return SUBSETS
    return MASKED if mask != "none" and data == "cifar10" else ALL_DATA


def of_code(code: str) -> pl.Expr:
    """Select the runs that are made as a version of the authors' code would have made them.

    A head that has no choice of start, gain or batch size is the same under each.
    """
    known = vars(CODES[code]).items()
    same = (pl.col(name).is_null() | (pl.col(name) == value) for name, value in known)
    return pl.all_horizontal(*same)


SEEDS = 8  # behind each published mean
WIDE = 5.0  # from this published deviation on, a mean says nothing
KEY = ("features", "label", "head", "mask", "lr", "subset")
PUBLISHED: dict[str, type[pl.DataType]] = {  # what is put beside our numbers
    "published_mean": pl.Float64,
    "published_std": pl.Float64,
    "verdict": pl.String,
}


def published() -> pl.DataFrame:
    """Return the paper's 530 numbers, by experiment, features, label, head, mask, lr and subset.

    ``mean`` and ``std`` are percentages. ``lr`` is null for heads without gradient, ``subset``
    where all data were used.

    >>> table = published().filter(features="cifar100/resnet20-cifar100", head="median")
    >>> table.filter(pl.col("subset").is_null()).select("label", "mean", "std").rows()
    [('coarse', 64.17, 0.0)]
    """
    raw = pl.read_csv(Path(__file__).with_name("published.csv"), schema_overrides=_SCHEMA)
    names = {HEADS[name].source: name for name in PAPER_HEADS if name in HEADS}
    data, head = pl.col("dataset"), pl.col("layer").replace_strict(names)
    backbone = pl.concat_str("pretraining", "architecture", separator=" ").replace_strict(
        PAPER_BACKBONES
    )
    selected = head.replace_strict(SELECTED, default=None)
    lr = pl.when(pl.col("learning_rate") == "selected").then(selected)
    return raw.select(
        "experiment",
        data.replace_strict({k: f"{name}/" for k, (name, _) in PAPER_DATA.items()}).add(backbone)
        .alias("features"),
        data.replace_strict({k: label for k, (_, label) in PAPER_DATA.items()}).alias("label"),
        head.alias("head"),
        "mask",
        lr.otherwise(pl.col("learning_rate").cast(pl.Float64, strict=False)).alias("lr"),
        pl.col("subset").cast(pl.Int64, strict=False),
        "mean",
        "std",
    )  # fmt: skip


_SCHEMA = {"learning_rate": pl.String, "subset": pl.String, "mean": pl.Float64, "std": pl.Float64}


def agree(mean: float, std: float, published_mean: float, published_std: float) -> Verdict:
    """Return whether two means of eight runs agree, in percentage points.

    They do when they differ by less than max(0.5, 3·√((s² + s²)/8)). A published deviation of 5 or
    more is "wide": most such rows mix two backbones, and no mean can be compared with them.

    >>> agree(70.3, 0.1, published_mean=70.36, published_std=0.10)
    'agrees'
    """
    numbers = {"mean": mean, "std": std, "published_mean": published_mean}
    for name, number in {**numbers, "published_std": published_std}.items():
        expect(number, Real, name, "a number")
    if published_std >= WIDE:
        return "wide"
    tolerance = max(0.5, 3 * hypot(std, published_std) / sqrt(SEEDS))
    return "agrees" if abs(mean - published_mean) < tolerance else "differs"


def beside(ours: pl.DataFrame) -> pl.DataFrame:
    """Put the published number and the verdict beside each of ours; null where there is none.

    Ours are in percentages, in columns features, label, head, mask, lr, subset, mean, std.
    """
    expect(ours, pl.DataFrame, "ours", "a polars DataFrame")
    if missing := sorted({*KEY, "mean", "std"} - set(ours.columns)):
        raise DataError(f"ours must have the columns {', '.join(missing)}, but they are missing")
    rows = published().iter_rows(named=True)
    known = {tuple(row[name] for name in KEY): (row["mean"], row["std"]) for row in rows}
    found = []
    for row in ours.iter_rows(named=True):
        mean, std = known.get(tuple(row[name] for name in KEY), (None, None))
        verdict = None if mean is None else agree(row["mean"], row["std"], mean, std)
        found.append({"published_mean": mean, "published_std": std, "verdict": verdict})
    return pl.concat([ours, pl.DataFrame(found, schema=PUBLISHED)], how="horizontal")
