"""Which output vectors lie too close to whose data: three maps and the riskiest pairs (Fig. 3)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from lastlayer.analysis import angles_between, interference_risk, largest_risk, riskiest_pairs
from lastlayer.report.tables.select import HEAD, STREAM, in_order, streams
from lastlayer.report.tables.vectors import TEXTS, WHAT, class_names
from lastlayer.results import Study

CLASSES = 50  # of a map, at most: those in the greatest danger
PAIRS = 10
ENDS: dict[str, type[pl.DataType]] = {
    "class": pl.Int64,
    "class_name": pl.String,
    "vector": pl.Int64,
    "vector_name": pl.String,
}
ANGLES = ("between", "to_data", "risk")


def maps(study: Study) -> pl.DataFrame:
    """Give for pairs of classes the angle of vectors, of data to vectors, and the risk."""
    rows = []
    for parts in _streams(study).values():
        danger = np.nanmax([largest_risk(risk) for _, _, _, risk in parts], axis=0, initial=0)
        chosen = np.sort(np.argsort(-danger, kind="stable")[:CLASSES])
        rows += [row for part in parts for row in _cells(study, part, chosen)]
    schema: dict[str, Any] = {**TEXTS, **ENDS, **dict.fromkeys(ANGLES, pl.Float64)}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return in_order(table, "kind", *STREAM, *HEAD, "class", "vector")


def pairs(study: Study) -> pl.DataFrame:
    """Give the riskiest pairs of each head, the riskiest first, of all classes."""
    rows = [
        (*(run[name] for name in WHAT), *_two(study, run, c, i), value, angle[c, c], angle[c, i])
        for parts in _streams(study).values()
        for run, _, angle, risk in parts
        for c, i, value in riskiest_pairs(risk, PAIRS)
    ]
    numbers = dict.fromkeys(("risk", "own_angle", "wrong_angle"), pl.Float64)
    table = pl.DataFrame(rows, schema={**TEXTS, **ENDS, **numbers}, orient="row")
    return in_order(table, "kind", *STREAM, *HEAD)


Part = tuple[dict[str, Any], NDArray[Any], NDArray[Any], NDArray[Any]]  # run, and its three maps


def _streams(study: Study) -> dict[tuple[Any, ...], list[Part]]:
    """Give the maps of linear and weight_norm after the last task of order 0, by stream."""
    runs = streams(study).filter(
        pl.col("head").is_in(["linear", "weight_norm"]), order=0, mask="none"
    )
    runs = runs.unique([*STREAM, *HEAD], keep="first", maintain_order=True)
    angles, weights = (study.arrays(name, runs) for name in ("data_angles", "weight"))
    found: dict[tuple[Any, ...], list[Part]] = {}
    for run in runs.iter_rows(named=True):
        if run["digest"] in angles:
            to_data = angles[run["digest"]][-1].astype(np.float64)
            between = angles_between(weights[run["digest"]][-1])
            part = run, between, to_data, interference_risk(to_data)
            found.setdefault(tuple(run[name] for name in STREAM), []).append(part)
    return found


def _cells(study: Study, part: Part, chosen: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    run, *angles = part
    for c in chosen.tolist():
        for i in chosen.tolist():
            values = (float(angle[c, i]) for angle in angles)
            numbers = (value if np.isfinite(value) else None for value in values)
            yield (*(run[name] for name in WHAT), *_two(study, run, c, i), *numbers)


def _two(study: Study, run: dict[str, Any], c: int, i: int) -> tuple[Any, ...]:
    names = class_names(study, run)
    return *names[c], *names[i]
