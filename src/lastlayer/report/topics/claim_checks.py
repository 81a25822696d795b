"""The tests of the paper's conclusions, on paired differences (docs/decisions/11).

Only the paper's heads are asked, whatever else a study contains.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

import numpy as np
import polars as pl

from lastlayer.analysis import (
    Difference,
    Verdict,
    all_hold,
    any_holds,
    opposite,
    paired_difference,
)
from lastlayer.report.drift import MEANING
from lastlayer.report.looks import paper_layers

SIMILAR = ("knn", "mean", "slda")
BEST = ("weight_norm", "cosine+single")  # of the gradient layers, as the paper names them (Fig. 5c)
LITTLE = 1000  # samples, at most
COMPETITIVE = 5.0  # points: the spread of the curves that the paper calls very competitive (Fig. 6)
SLIGHTLY = 10.0  # points
MANAGED = 2 / 3  # of every other layer

Place = tuple[str, ...]  # a stream, or a data set and the size of a subset
Values = Mapping[int, float]  # by order or seed, in percent
Table = Mapping[Place, Mapping[str, Values]]  # place → head with its mask → values


class Part(NamedTuple):
    """One comparison of a claim."""

    text: str
    difference: Difference
    verdict: Verdict
    counts: bool = True  # in the verdict of the claim; else it is shown beside it


class Judged(NamedTuple):
    """What came of a claim."""

    verdict: Verdict
    parts: Sequence[Part]


Found = Judged | None  # None: the study cannot tell


@dataclass(frozen=True)
class Numbers:
    """Accuracies from one start, and with one gain."""

    streams: Mapping[str, Table] = field(default_factory=dict)  # by kind of drift
    iid: Table = field(default_factory=dict)  # by data set and size, None: all data
    first_task: Mapping[str, Table] = field(default_factory=dict)  # on the first task at the end
    by_epoch: Table = field(default_factory=dict)  # "layer, epoch 4" and 5: all data, no mask


def gradient_layers() -> list[str]:
    """Name the paper's layers that are trained by gradient."""
    return paper_layers(by_gradient=True)


def _masked(mask: str) -> list[str]:
    return [f"{layer}+{mask}" for layer in gradient_layers()]


def _having(table: Table, names: Sequence[str]) -> list[Mapping[str, Values]]:
    """Return the places in which all of these heads were run."""
    return [heads for heads in table.values() if all(name in heads for name in names)]


Cells = Sequence[Sequence[Mapping[str, Values]]]  # groups that weigh the same, of places


def _cells(streams: Mapping[str, Table], kinds: Sequence[str], names: Sequence[str]) -> Cells:
    """Return the streams of each kind that have all heads; nothing where a kind has none."""
    cells = [_having(streams.get(kind, {}), names) for kind in kinds]
    return cells if all(cells) else []


def _average(cells: Cells, names: Sequence[str]) -> dict[int, float]:
    """Average heads within each order, then places, then groups; whole orders only."""
    places = [heads[name] for group in cells for heads in group for name in names]
    orders = set.intersection(*(set(values) for values in places))
    return {
        order: fmean(
            fmean(fmean(heads[name][order] for name in names) for heads in group) for group in cells
        )
        for order in sorted(orders)
    }


def _paired(first: Values, second: Values) -> Difference | None:
    orders = sorted(first.keys() & second.keys())
    if not orders:
        return None
    return paired_difference(*(np.array([v[o] for o in orders]) for v in (first, second)))


def _gap(cells: Cells, first: str | Sequence[str], second: str | Sequence[str]) -> Difference:
    """Compare two heads, or averages of some; an empty interval where no order has both."""
    names = [[names] if isinstance(names, str) else list(names) for names in (first, second)]
    found = _paired(*(_average(cells, each) for each in names))
    return found or Difference(float("nan"), -float("inf"), float("inf"), 0)


def _above(
    cells: Cells, first: str, others: Sequence[str], margin: float | None = None, where: str = ""
) -> Iterator[Part]:
    """Compare a head with others: it is above each of them, or not more than −margin below."""
    for other in others:
        gap = _gap(cells, first, other)
        verdict = gap.above() if margin is None else gap.above(margin)
        yield Part(f"{where}{first} − {other}", gap, verdict)


def _all(parts: Sequence[Part]) -> Found:
    return Judged(all_hold(p.verdict for p in parts if p.counts), parts) if parts else None


def best_layers(numbers: Numbers) -> Found:
    """1: cosine and weight_norm above the other layers, no mask, over kinds; and kind by kind."""
    layers, ours = gradient_layers(), ("cosine", "weight_norm")
    others = [layer for layer in layers if layer not in ours]
    cells = _cells(numbers.streams, list(MEANING), layers)
    if not cells:
        return None
    parts = [part for name in ours for part in _above(cells, name, others)]
    for kind, group in zip(MEANING, cells, strict=True):
        beside = (
            part for name in ours for part in _above([group], name, others, None, f"{kind}: ")
        )
        parts += [part._replace(counts=False) for part in beside]
    return _all(parts)


def drifts(numbers: Numbers) -> Found:
    """2: all layers manage lifelong; elsewhere angles and masks help, and nothing else."""
    layers = gradient_layers()
    lifelong = _cells(numbers.streams, ["lifelong"], layers)
    helping = ("weight_norm", "cosine", "linear+single", "linear+group")
    plain = ("linear_no_bias", "original_weight_norm")
    elsewhere = _cells(numbers.streams, ["incremental", "mixed"], ["linear", *helping, *plain])
    if not lifelong or not elsewhere:
        return None
    parts = []
    values = {layer: _average(lifelong, [layer]) for layer in layers}
    for first in layers:
        for second in layers:
            part = {order: MANAGED * value for order, value in values[second].items()}
            gap = _paired(values[first], part)
            if first != second and gap is not None:
                parts.append(Part(f"lifelong: {first} − ⅔ {second}", gap, gap.above(0)))
    where = "incremental and mixed: "
    parts += _above(elsewhere, "weight_norm", ["linear"], None, where)
    for name in helping[1:]:
        parts += _above(elsewhere, name, ["linear"], None, where)
    for name in plain:
        gap = _gap(elsewhere, name, "linear")
        parts.append(Part(f"{where}{name} − linear, not above", gap, opposite(gap.above())))
    return _all(parts)


def no_bias(numbers: Numbers) -> Found:
    """3: linear_no_bias equals linear in every stream."""
    names, parts = ("linear", "linear_no_bias"), []
    for table in numbers.streams.values():
        for place, heads in table.items():
            if all(name in heads for name in names):
                gap = _gap([[heads]], names[1], names[0])
                parts.append(Part(f"{place[0]}: without − with bias", gap, gap.within()))
    return _all(parts)


def masks_incremental(numbers: Numbers) -> Found:
    """4: none < group < single over layers; single masking adds most to cosine."""
    layers, single, group = gradient_layers(), _masked("single"), _masked("group")
    cells = _cells(numbers.streams, ["incremental"], [*layers, *single, *group])
    if not cells:
        return None
    parts = []
    for text, first, second in (("group − none", group, layers), ("single − group", single, group)):
        gap = _gap(cells, first, second)
        parts.append(Part(f"mean of layers: {text}", gap, gap.above()))
    gains = {layer: _added(cells, layer) for layer in layers}
    for layer in layers:
        more = None if layer == "cosine" else _paired(gains["cosine"], gains[layer])
        if more is not None:
            parts.append(Part(f"gain by single: cosine − {layer}", more, more.above()))
    return _all(parts)


def _added(cells: Cells, layer: str) -> dict[int, float]:
    """Return what single masking adds to a layer, order by order."""
    masked, plain = _average(cells, [f"{layer}+single"]), _average(cells, [layer])
    return {order: masked[order] - plain[order] for order in masked.keys() & plain.keys()}


def masks_lifelong(numbers: Numbers) -> Found:
    """5: single below none, group equal to none, over layers."""
    layers, single, group = gradient_layers(), _masked("single"), _masked("group")
    cells = _cells(numbers.streams, ["lifelong"], [*layers, *single, *group])
    if not cells:
        return None
    harm, same = _gap(cells, single, layers), _gap(cells, group, layers)
    return _all(
        [
            Part("mean of layers: single − none", harm, harm.below()),
            Part("mean of layers: group − none", same, same.within()),
        ]
    )


def similarity(numbers: Numbers) -> Found:
    """6: knn, mean and slda not far below the best gradient layers in any kind; slda most."""
    names = [*SIMILAR, *BEST]
    cells = _cells(numbers.streams, list(MEANING), names)
    if not cells:
        return None
    parts = [
        part
        for kind, group in zip(MEANING, cells, strict=True)
        for name in SIMILAR
        for part in _above([group], name, BEST, -COMPETITIVE, f"{kind}: ")
    ]
    others = [name for name in SIMILAR if name != "slda"]
    return _all([*parts, *_above(cells, "slda", others, None, "over kinds: ")])


def _sizes(numbers: Numbers, names: Sequence[str], most: int | None = None) -> Cells:
    """Return the data sets and sizes that have all heads; with ``most``, of few samples only."""
    little = {
        place: heads
        for place, heads in numbers.iid.items()
        if most is None or (place[-1] != "all" and int(place[-1]) <= most)
    }
    found = _having(little, names)
    return [found] if found else []


def masks_iid(numbers: Numbers) -> Found:
    """7: i.i.d., single masking lowers all layers but cosine, over data sets and sizes."""
    layers = gradient_layers()
    # Only data sets that were tried in subsets: others have all data alone.
    tried = {place[:-1] for place in numbers.iid if place[-1] != "all"}
    some = {place: heads for place, heads in numbers.iid.items() if place[:-1] in tried}
    cells = _sizes(Numbers(iid=some), [*layers, *_masked("single")])
    if not cells:
        return None
    parts = []
    for layer in layers:
        gap = _gap(cells, f"{layer}+single", layer)
        lowered = gap.below()
        text = f"{layer}: single − none" + (", not below" if layer == "cosine" else "")
        parts.append(Part(text, gap, opposite(lowered) if layer == "cosine" else lowered))
    return _all(parts)


def _tried(numbers: Numbers) -> list[str]:
    """Name the gradient heads, masked or not, that all subsets have."""
    layers = gradient_layers()
    names = [f"{layer}{end}" for layer in layers for end in ("", "+single", "+group")]
    tables = [h for p, h in numbers.iid.items() if p[-1] != "all" and int(p[-1]) <= LITTLE]
    return [name for name in names if tables and all(name in heads for heads in tables)]


def little_data(numbers: Numbers) -> Found:
    """8: weight_norm, cosine+single and linear within 5 points of every gradient head."""
    names, ours = _tried(numbers), (*BEST, "linear")
    cells = _sizes(numbers, names, LITTLE)
    if not cells or not set(ours) <= set(names):
        return None
    return _all(
        [
            part
            for name in ours
            for part in _above(cells, name, [n for n in names if n != name], -COMPETITIVE)
        ]
    )


def similarity_behind(numbers: Numbers) -> Found:
    """9: knn, mean and slda below one of the best gradient layers each, and by less than 10."""
    cells = _sizes(numbers, [*SIMILAR, *BEST], LITTLE)
    if not cells:
        return None
    gaps = {(s, b): _gap(cells, s, b) for s in SIMILAR for b in BEST}
    behind = [any_holds(gaps[s, b].below() for b in BEST) for s in SIMILAR]
    decent = any_holds(all_hold(gaps[s, b].above(-SLIGHTLY) for b in BEST) for s in SIMILAR)
    parts = [Part(f"{s} − {b}", gap, gap.below()) for (s, b), gap in gaps.items()]
    return Judged(all_hold([*behind, decent]), parts)


def recommendation(numbers: Numbers) -> Found:
    """11: one of the best gradient layers is at most 0.5 below every other, everywhere."""
    layers = gradient_layers()
    names = [*layers, *_masked("single"), *_masked("group")]
    cells = _cells(numbers.streams, list(MEANING), names)
    tried = _tried(numbers)
    little = _sizes(numbers, tried, LITTLE) if set(BEST) <= set(tried) else []
    if not cells or not little:
        return None
    settings = [(kind, [group], names) for kind, group in zip(MEANING, cells, strict=True)]
    parts, verdicts = [], []
    for where, group, known in [*settings, ("little data", little, tried)]:
        found = {}
        for ours in BEST:
            others = [name for name in known if name != ours]
            mine = list(_above(group, ours, others, -0.5, f"{where}: "))
            parts += mine
            found[ours] = all_hold(part.verdict for part in mine)
        verdicts.append(any_holds(found.values()))
        if where == "lifelong":
            verdicts.append(found["weight_norm"])
    return Judged(all_hold(verdicts), parts)


def first_task(numbers: Numbers) -> Found:
    """Check: in lifelong, masks leave the accuracy on the first task at the end alone."""
    layers = gradient_layers()
    cells = _cells(
        numbers.first_task, ["lifelong"], [*layers, *_masked("single"), *_masked("group")]
    )
    if not cells:
        return None
    parts = []
    for mask in ("single", "group"):
        gap = _gap(cells, _masked(mask), layers)
        parts.append(Part(f"first task at the end: {mask} − none", gap, gap.within()))
    return _all(parts)


def five_epochs(by_epoch: Table) -> Found:
    """Check: the fifth epoch adds no more than 0.5 points to the fourth, for each layer.

    Args:
        by_epoch: place → "layer, epoch 4" and "layer, epoch 5" → values.
    """
    parts = []
    for layer in gradient_layers():
        names = [f"{layer}, epoch {n}" for n in (4, 5)]
        cells = [_having(by_epoch, names)]
        if cells[0]:
            gap = _gap(cells, names[1], names[0])
            parts.append(Part(f"{layer}: epoch 5 − epoch 4", gap, opposite(gap.above())))
    return _all(parts)


def group_masking(networks: pl.DataFrame) -> Found:
    """10: group masking raises weight_norm at the lowest balance, most there, and harms nowhere.

    Args:
        networks: finished ones of one setting, rows of ``Study.replay`` or of its export: columns
            balance, head, mask, seed and final.
    """
    values: dict[tuple[float, str], dict[int, float]] = defaultdict(dict)
    known = networks.drop_nulls("final").filter(pl.col("mask").is_in(["none", "group"]))
    for balance, head, mask, seed, final in known.select(
        "balance", "head", "mask", "seed", "final"
    ).rows():
        values[balance, head if mask == "none" else f"{head}+{mask}"][seed] = 100 * final
    parts: list[Part] = []
    for layer in ("weight_norm", "linear"):
        parts += _replayed(values, layer, counts=layer == "weight_norm")
    if not any(part.counts for part in parts):
        return None
    return _all(parts)


def _replayed(
    values: Mapping[tuple[float, str], Values], layer: str, *, counts: bool
) -> Iterator[Part]:
    masked = f"{layer}+group"
    gains = {}
    for balance in sorted({b for b, _ in values}):
        plain, group = values.get((balance, layer)), values.get((balance, masked))
        if plain and group:
            seeds = sorted(plain.keys() & group.keys())
            gains[balance] = {seed: group[seed] - plain[seed] for seed in seeds}
    gains = {balance: gain for balance, gain in gains.items() if gain}
    if len(gains) < 2:
        return
    lowest, *others = gains
    for balance, gain in gains.items():
        gap = _paired(gain, dict.fromkeys(gain, 0.0))
        if gap is not None:
            verdict = gap.above() if balance == lowest else opposite(gap.below())
            what = "above" if balance == lowest else "not below"
            text = f"balance {balance:g}: {masked} − {layer}, {what}"
            yield Part(text, gap, verdict, counts)
    most = _paired(gains[lowest], gains[others[-1]])
    if most is not None:
        text = f"{layer}: gain at balance {lowest:g} − gain at {others[-1]:g}"
        yield Part(text, most, most.above(), counts)


Check = Callable[[Numbers], Found]
