"""Heads beyond the paper on the bundled features: the table in results/beyond.

    python -m benchmarks.beyond [--device cuda] [--out results/beyond] [--seeds 5] [--widths 1000]
    python -m benchmarks.beyond --features cub200.safetensors --scenario cub200 --out results/cub200

Rows that the output file holds already are not made again. The default map comes first: from 64
features on, products of unit rows, which depend on no row and with 64 features are not random. The
others are fixed by the first 1,000 rows of the stream. `best` is the accuracy of the best penalty
in hindsight, on the test rows, which nothing else here looks at. It needs torch, numpy and
safetensors only, on a GPU.
"""

import argparse
import csv
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import torch
from torch import Tensor

from lastlayer.catalogue.map_widths import default_map, mapped_width
from lastlayer.data import load_features
from lastlayer.errors import OptionError
from lastlayer.evaluate.softmax import reference
from lastlayer.heads import make_head, make_map
from lastlayer.heads.maps.feature_map import MAPS, ROWS
from lastlayer.heads.maps.mapped_head import MappedHead
from lastlayer.heads.statistics.least_squares import reduce
from lastlayer.heads.statistics.penalty import PENALTIES
from lastlayer.heads.statistics.ridge import RidgeHead
from lastlayer.scenarios import make_scenario

FIELDS = ("data", "head", "map", "width", "seed", "accuracy", "best", "seconds")
DATA = {  # the scenario, whose first task fixes the maps
    "cifar10": ("cifar10", None, "cifar10"),
    "cifar100 coarse, lifelong": ("cifar100", "coarse", "cifar100_lifelong"),
    "cifar100 fine": ("cifar100", None, "cifar100"),
}
PLAIN: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("mean", "slda", "ridge", "qda", "sampled_linear")},
    "qda, diagonal": ("qda", {"diagonal": True}),
}
Row = dict[str, str]


class Data:
    """Features of a stream, and the rows that fix its maps."""

    def __init__(
        self, features: str, label: str | None, scenario: str, device: torch.device
    ) -> None:
        data = load_features(features) if label is None else load_features(features, label=label)
        first = torch.cat(make_scenario(scenario, data).tasks)[:ROWS]
        self.z, self.y = data.train.z.float().to(device), data.train.y.to(device)
        self.test_z, self.test_y = data.test.z.float().to(device), data.test.y.to(device)
        self.first, self.n_classes = self.z[first.to(device)], int(self.y.max()) + 1
        self.device = device

    def accuracy(self, predict: Callable[[Tensor], Tensor]) -> float:
        return 100 * (predict(self.test_z) == self.test_y).double().mean().item()


class Table:
    """Rows in a CSV file, each written as soon as it is known."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, list[Row]()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            with path.open(newline="") as file:
                self.rows = list(csv.DictReader(file))
        else:
            path.write_text(",".join(FIELDS) + "\n")

    def lacks(self, *key: object) -> bool:
        asked = [str(part) for part in key]
        return all([row[name] for name in FIELDS[: len(asked)]] != asked for row in self.rows)

    def add(self, *values: object) -> None:
        row = {
            name: f"{value:.2f}" if isinstance(value, float) else str(value)
            for name, value in zip(FIELDS, values, strict=True)
        }
        self.rows.append(row)
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, FIELDS, lineterminator="\n").writerow(row)
        print(", ".join(row.values()), flush=True)


def hindsight(head: RidgeHead, mapped: Tensor, test_y: Tensor) -> float:
    """Return the accuracy of the best penalty that the head could choose."""
    centre, share, moments = head._by_sample()
    reduced = reduce(moments)
    best = 0.0
    for penalty in (PENALTIES * moments.level).tolist():
        weight = reduced.solve(penalty)
        right = ((mapped - centre) @ weight + share).argmax(dim=1) == test_y
        best = max(best, 100 * right.double().mean().item())
    return best


def plain(table: Table, name: str, data: Data) -> None:
    """Score the heads without a map, and the reference on everything."""
    for label, (head_name, options) in PLAIN.items():
        if table.lacks(name, label, "", 0, 0):
            start = time.perf_counter()
            try:
                head = make_head(head_name, data.z.shape[1], **options).to(data.device)
                head.observe(data.z, data.y)
            except OptionError as error:
                print(f"{label} on {name}: {error}", flush=True)
                continue
            found = data.accuracy(head.predict)
            table.add(name, label, "", 0, 0, found, "", time.perf_counter() - start)
    if table.lacks(name, "reference", "", 0, 0):
        start = time.perf_counter()
        found = data.accuracy(reference(data.z, data.y, data.n_classes).predict)
        table.add(name, "reference", "", 0, 0, found, "", time.perf_counter() - start)


def behind(table: Table, name: str, data: Data, kind: str, width: int, seed: int) -> None:
    """Score ridge and slda behind one map, from the same statistics."""
    if not table.lacks(name, "random_ridge", kind, width, seed):
        return
    start = time.perf_counter()
    rows = "unit" if kind == "quadratic" else "as_is"
    like = make_map(kind, data.z.shape[1], width, seed, rows).to(data.device).fit(data.first)
    ridge, slda = (
        make_head(head, data.z.shape[1], like=like).to(data.device)
        for head in ("random_ridge", "random_slda")
    )
    assert isinstance(ridge, MappedHead)
    assert isinstance(slda, MappedHead)
    ridge.observe(data.z, data.y)
    accuracy = data.accuracy(ridge.predict)
    seconds = time.perf_counter() - start
    assert isinstance(ridge.inner, RidgeHead)
    best = hindsight(ridge.inner, like(data.test_z), data.test_y)
    table.add(name, "random_ridge", kind, width, seed, accuracy, best, seconds)
    slda.inner.statistics, slda.inner.seen, slda.seen = (
        ridge.inner.statistics,
        ridge.seen,
        ridge.seen,
    )
    table.add(name, "random_slda", kind, width, seed, data.accuracy(slda.predict), "", "")


def behind_default(table: Table, name: str, data: Data) -> None:
    """Score ridge and slda behind the map that they have by default, if it depends on no row."""
    h = data.z.shape[1]
    if (kind := default_map(h, mapped_width(h))) is not None:
        behind(table, name, data, kind, mapped_width(h), 0)


def behind_reference(table: Table, name: str, data: Data, width: int) -> None:
    if table.lacks(name, "reference", "fourier", width, 0):
        start = time.perf_counter()
        like = make_map("fourier", data.z.shape[1], width).to(data.device).fit(data.first)
        found = data.accuracy(reference(data.z, data.y, data.n_classes, map=like).predict)
        table.add(name, "reference", "fourier", width, 0, found, "", time.perf_counter() - start)


def summary(rows: list[Row]) -> Iterator[str]:
    """Write the table in Markdown: means over the seeds of the maps, and what the penalty loses."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    yield "| head | " + " | ".join(names) + " |"
    yield "|---|" + "---|" * len(names)
    for key in dict.fromkeys((row["head"], row["map"], row["width"]) for row in rows):
        cells = []
        for name in names:
            found = [row for row in rows if (row["head"], row["map"], row["width"]) == key]
            values = [float(row["accuracy"]) for row in found if row["data"] == name]
            many = f" ± {pstdev(values):.2f} ({len(values)} maps)" if len(values) > 1 else ""
            cells.append(f"{mean(values):.1f}{many}" if values else "")
        label = key[0] + (f", {key[1]} {key[2]}" if key[1] else "")
        yield f"| {label} | " + " | ".join(cells) + " |"
    lost = [
        (float(row["best"]) - float(row["accuracy"]), row["data"]) for row in rows if row["best"]
    ]
    if lost:
        yield f"\nThe penalty chosen loses {mean(part for part, _ in lost):.2f} points on average"
        for name in names:
            worst = max((part for part, where in lost if where == name), default=0.0)
            yield f"and at most {worst:.2f} on {name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/beyond"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--widths", type=int, nargs="+", default=[1000, 2000, 4000])
    parser.add_argument("--kinds", nargs="+", choices=MAPS, default=["relu", "fourier"])
    parser.add_argument("--most", type=float, default=math.inf, help="begin no map after seconds")
    parser.add_argument("--reference", type=int, default=2000, help="width behind; 0: none")
    parser.add_argument("--features", type=Path, help="a features file, instead of the bundled")
    parser.add_argument("--scenario", help="the scenario of that file")
    asked = parser.parse_args()
    if (asked.features is None) != (asked.scenario is None):
        parser.error("--features and --scenario belong together")
    began, table = time.perf_counter(), Table(asked.out / "accuracy.csv")
    own = asked.features and {asked.features.stem: (str(asked.features), None, asked.scenario)}
    device = torch.device(asked.device)
    data = {name: Data(*where, device) for name, where in (own or DATA).items()}
    for name, rows in data.items():
        plain(table, name, rows)
        behind_default(table, name, rows)
    for width in asked.widths:
        for seed in range(asked.seeds):
            for kind in asked.kinds:
                for name, rows in data.items():
                    if time.perf_counter() - began < asked.most:
                        behind(table, name, rows, kind, width, seed)
    if asked.reference:
        for name, rows in data.items():
            behind_reference(table, name, rows, asked.reference)
    text = "\n".join(summary(table.rows))
    (asked.out / "table.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
