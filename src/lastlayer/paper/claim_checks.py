"""The tests of the paper's conclusions, on paired differences (docs/decisions/11).

Only the paper's heads are asked, whatever else a study contains.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
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
from lastlayer.report.data_names import MEANING
from lastlayer.report.looks import paper_layers

LAYERS = paper_layers(by_gradient=True)
SINGLE, GROUP = ([f"{layer}+{mask}" for layer in LAYERS] for mask in ("single", "group"))
EVERY = [*LAYERS, *SINGLE, *GROUP]
SIMILAR = ("knn", "mean", "slda")
BEST = ("weight_norm", "cosine+single")  # of the gradient layers, as the paper names them (Fig. 5c)
LITTLE = 1000  # samples, at most
COMPETITIVE = 5.0  # points: the spread of the curves that the paper calls very competitive (Fig. 6)
SLIGHTLY = 10.0  # points
MANAGED = 2 / 3  # of every other layer

Place = tuple[str, ...]  # a stream, or a data set and the size of a subset
Values = Mapping[int, float]  # by order or seed, in percent
Table = Mapping[Place, Mapping[str, Values]]  # place → head with its mask → values
Cells = Mapping[str, Sequence[Mapping[str, Values]]]  # groups that weigh the same, of places
Rule = Callable[[Difference], Verdict]  # what is asked of a difference


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


Check = Callable[[Numbers], Found]


def _not_above(gap: Difference) -> Verdict:
    return opposite(gap.above())


def _not_below(gap: Difference) -> Verdict:
    return opposite(gap.below())


def _less_below(points: float) -> Rule:
    """Ask that a difference is above minus so many points."""
    return partial(Difference.above, margin=-points)


def _having(table: Table, names: Collection[str]) -> list[Mapping[str, Values]]:
    """Return the places in which all of these heads were run."""
    return [heads for heads in table.values() if all(name in heads for name in names)]


def _cells(streams: Mapping[str, Table], kinds: Iterable[str], names: Collection[str]) -> Cells:
    """Return the streams of each kind that have all heads; nothing where a kind has none."""
    cells = {kind: _having(streams.get(kind, {}), names) for kind in kinds}
    return cells if all(cells.values()) else {}


def _average(cells: Cells, names: Sequence[str]) -> dict[int, float]:
    """Average heads within each order, then places, then groups; whole orders only."""
    places = [heads[name] for group in cells.values() for heads in group for name in names]
    orders = set.intersection(*(set(values) for values in places))
    return {
        order: fmean(
            fmean(fmean(heads[name][order] for name in names) for heads in group)
            for group in cells.values()
        )
        for order in sorted(orders)
    }


def _paired(first: Values, second: Values) -> Difference | None:
    orders = sorted(first.keys() & second.keys())
    if not orders:
        return None
    return paired_difference(*(np.array([v[o] for o in orders]) for v in (first, second)))


def _compare(
    cells: Cells,
    first: str | Sequence[str],
    second: str | Sequence[str],
    text: str,
    rule: Rule = Difference.above,
) -> list[Part]:
    """Compare two heads, or averages of some; nothing where there are no cells.

    Where no order has both, the difference is unknown, and so is the verdict.
    """
    if not cells:
        return []
    names = [[names] if isinstance(names, str) else list(names) for names in (first, second)]
    found = _paired(*(_average(cells, each) for each in names))
    gap = found or Difference(float("nan"), -float("inf"), float("inf"), 0)
    return [Part(text, gap, rule(gap))]


def _each(
    cells: Cells,
    ours: Sequence[str],
    others: Sequence[str],
    rule: Rule = Difference.above,
    where: str = "",
) -> list[Part]:
    """Compare each of our heads with each of the others."""
    return [
        part
        for first in ours
        for other in others
        if other != first
        for part in _compare(cells, first, other, f"{where}{first} − {other}", rule)
    ]


def _all(parts: Sequence[Part]) -> Found:
    return Judged(all_hold(p.verdict for p in parts if p.counts), parts) if parts else None


def best_layers(numbers: Numbers) -> Found:
    """1: cosine and weight_norm above the other layers, no mask, over kinds; and kind by kind."""
    ours = ("cosine", "weight_norm")
    others = [layer for layer in LAYERS if layer not in ours]
    cells = _cells(numbers.streams, MEANING, LAYERS)
    parts = _each(cells, ours, others)
    for kind, group in cells.items():
        beside = _each({kind: group}, ours, others, where=f"{kind}: ")
        parts += [part._replace(counts=False) for part in beside]
    return _all(parts)


def drifts(numbers: Numbers) -> Found:
    """2: all layers manage lifelong; elsewhere angles and masks help, and nothing else."""
    lifelong = _cells(numbers.streams, ["lifelong"], LAYERS)
    helping = ("weight_norm", "cosine", "linear+single", "linear+group")
    plain = ("linear_no_bias", "original_weight_norm")
    elsewhere = _cells(numbers.streams, ["incremental", "mixed"], ["linear", *helping, *plain])
    if not lifelong or not elsewhere:
        return None
    parts = []
    values = {layer: _average(lifelong, [layer]) for layer in LAYERS}
    for first, second in permutations(LAYERS, 2):
        part = {order: MANAGED * value for order, value in values[second].items()}
        gap = _paired(values[first], part)
        if gap is not None:
            parts.append(Part(f"lifelong: {first} − ⅔ {second}", gap, gap.above(0)))
    where = "incremental and mixed: "
    parts += _each(elsewhere, helping, ["linear"], where=where)
    for name in plain:
        text = f"{where}{name} − linear, not above"
        parts += _compare(elsewhere, name, "linear", text, _not_above)
    return _all(parts)


def no_bias(numbers: Numbers) -> Found:
    """3: linear_no_bias equals linear in every stream."""
    first, second = "linear_no_bias", "linear"
    parts: list[Part] = []
    for place, heads in (pair for table in numbers.streams.values() for pair in table.items()):
        if first in heads and second in heads:
            text = f"{place[0]}: without − with bias"
            parts += _compare({place[0]: [heads]}, first, second, text, Difference.within)
    return _all(parts)


def masks_incremental(numbers: Numbers) -> Found:
    """4: none < group < single over layers; single masking adds most to cosine."""
    cells = _cells(numbers.streams, ["incremental"], EVERY)
    if not cells:
        return None
    parts = [
        *_compare(cells, GROUP, LAYERS, "mean of layers: group − none"),
        *_compare(cells, SINGLE, GROUP, "mean of layers: single − group"),
    ]
    gains = {layer: _added(cells, layer) for layer in LAYERS}
    for layer in LAYERS:
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
    cells = _cells(numbers.streams, ["lifelong"], EVERY)
    single = _compare(cells, SINGLE, LAYERS, "mean of layers: single − none", Difference.below)
    group = _compare(cells, GROUP, LAYERS, "mean of layers: group − none", Difference.within)
    return _all([*single, *group])


def similarity(numbers: Numbers) -> Found:
    """6: knn, mean and slda not far below the best gradient layers in any kind; slda most."""
    cells = _cells(numbers.streams, MEANING, [*SIMILAR, *BEST])
    parts: list[Part] = []
    for kind, group in cells.items():
        parts += _each({kind: group}, SIMILAR, BEST, _less_below(COMPETITIVE), f"{kind}: ")
    return _all([*parts, *_each(cells, ["slda"], SIMILAR, where="over kinds: ")])


def _sizes(iid: Table, names: Collection[str], most: float = float("inf")) -> Cells:
    """Return the data sets and sizes that have all heads; with ``most``, of few samples only."""
    sizes = {place: float("inf") if place[-1] == "all" else int(place[-1]) for place in iid}
    found = _having({place: iid[place] for place, size in sizes.items() if size <= most}, names)
    return {"little data": found} if found else {}


def masks_iid(numbers: Numbers) -> Found:
    """7: i.i.d., single masking lowers all layers but cosine, over data sets and sizes."""
    # Only data sets that were tried in subsets: others have all data alone.
    tried = {place[:-1] for place in numbers.iid if place[-1] != "all"}
    some = {place: heads for place, heads in numbers.iid.items() if place[:-1] in tried}
    cells = _sizes(some, [*LAYERS, *SINGLE])
    parts: list[Part] = []
    for layer in LAYERS:
        rule = _not_below if layer == "cosine" else Difference.below
        text = f"{layer}: single − none" + (", not below" if layer == "cosine" else "")
        parts += _compare(cells, f"{layer}+single", layer, text, rule)
    return _all(parts)


def _tried(numbers: Numbers) -> list[str]:
    """Name the gradient heads, masked or not, that all subsets have."""
    names = [f"{layer}{end}" for layer in LAYERS for end in ("", "+single", "+group")]
    tables = [h for p, h in numbers.iid.items() if p[-1] != "all" and int(p[-1]) <= LITTLE]
    return [name for name in names if tables and all(name in heads for heads in tables)]


def little_data(numbers: Numbers) -> Found:
    """8: weight_norm, cosine+single and linear within 5 points of every gradient head."""
    names, ours = _tried(numbers), (*BEST, "linear")
    if not set(ours) <= set(names):
        return None
    return _all(_each(_sizes(numbers.iid, names, LITTLE), ours, names, _less_below(COMPETITIVE)))


def similarity_behind(numbers: Numbers) -> Found:
    """9: knn, mean and slda below one of the best gradient layers each, and by less than 10."""
    cells = _sizes(numbers.iid, [*SIMILAR, *BEST], LITTLE)
    if not cells:
        return None
    by_head = [_each(cells, [name], BEST, Difference.below) for name in SIMILAR]
    behind = [any_holds(part.verdict for part in parts) for parts in by_head]
    decent = any_holds(
        all_hold(part.difference.above(-SLIGHTLY) for part in parts) for parts in by_head
    )
    return Judged(all_hold([*behind, decent]), [part for parts in by_head for part in parts])


def recommendation(numbers: Numbers) -> Found:
    """11: one of the best gradient layers is at most 0.5 below every other, everywhere."""
    tried = _tried(numbers)
    cells = _cells(numbers.streams, MEANING, EVERY)
    little = _sizes(numbers.iid, tried, LITTLE) if set(BEST) <= set(tried) else {}
    if not cells or not little:
        return None
    parts, verdicts = [], []
    for where, group in (*cells.items(), *little.items()):
        known = tried if where in little else EVERY
        found = {}
        for ours in BEST:
            mine = _each({where: group}, [ours], known, _less_below(0.5), f"{where}: ")
            parts += mine
            found[ours] = all_hold(part.verdict for part in mine)
        verdicts.append(any_holds(found.values()))
        if where == "lifelong":
            verdicts.append(found["weight_norm"])
    return Judged(all_hold(verdicts), parts)


def first_task(numbers: Numbers) -> Found:
    """Check: in lifelong, masks leave the accuracy on the first task at the end alone."""
    cells = _cells(numbers.first_task, ["lifelong"], EVERY)
    parts: list[Part] = []
    for mask, masked in (("single", SINGLE), ("group", GROUP)):
        text = f"first task at the end: {mask} − none"
        parts += _compare(cells, masked, LAYERS, text, Difference.within)
    return _all(parts)


def five_epochs(numbers: Numbers) -> Found:
    """Check: the fifth epoch adds no more than 0.5 points to the fourth, for each layer."""
    parts: list[Part] = []
    for layer in LAYERS:
        fourth, fifth = (f"{layer}, epoch {n}" for n in (4, 5))
        cells = _cells({"all data": numbers.by_epoch}, ["all data"], [fourth, fifth])
        parts += _compare(cells, fifth, fourth, f"{layer}: epoch 5 − epoch 4", _not_above)
    return _all(parts)


def group_masking(networks: pl.DataFrame) -> Found:
    """10: group masking raises weight_norm at the lowest balance, most there, and harms nowhere.

    The networks are finished ones of one setting, rows of ``Study.replay`` or of its export.
    """
    parts = [*_replayed(networks, "weight_norm")]
    if not parts:
        return None
    # The text speaks of WeightNorm; the linear layer is shown beside it.
    return _all([*parts, *(part._replace(counts=False) for part in _replayed(networks, "linear"))])


def _replayed(networks: pl.DataFrame, layer: str) -> Iterator[Part]:
    """Compare a layer with and without group masking, balance by balance."""
    values: dict[tuple[float, str], dict[int, float]] = defaultdict(dict)
    known = networks.drop_nulls("final").filter(head=layer)
    for balance, mask, seed, final in known.select("balance", "mask", "seed", "final").rows():
        values[balance, mask][seed] = 100 * final
    gains = {}
    for balance in sorted({balance for balance, _ in values}):
        plain, group = values[balance, "none"], values[balance, "group"]
        gain = {seed: group[seed] - plain[seed] for seed in sorted(plain.keys() & group.keys())}
        if gain:
            gains[balance] = gain
    if len(gains) < 2:
        return
    lowest, *others = gains
    for balance, gain in gains.items():
        gap = _paired(gain, dict.fromkeys(gain, 0.0))
        if gap is not None:
            verdict = gap.above() if balance == lowest else _not_below(gap)
            what = "above" if balance == lowest else "not below"
            yield Part(f"balance {balance:g}: {layer}+group − {layer}, {what}", gap, verdict)
    most = _paired(gains[lowest], gains[others[-1]])
    if most is not None:
        text = f"{layer}: gain at balance {lowest:g} − gain at {others[-1]:g}"
        yield Part(text, most, most.above())
