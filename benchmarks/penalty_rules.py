"""Rules for the penalty of ridge, from sums alone, on many streams, widths and numbers of rows.

    python -m benchmarks.penalty_rules --sets DIR [--widths 500 1000 ...] [--rows 100 300 ...]

DIR is what `python -m benchmarks.regret_sets` makes; without it the bundled sets and scikit-learn's
are taken. Each cell has one draw of rows behind one random map (products of unit rows, or `relu` of
centred and scaled ones), and compares, on a grid of quarter decades, the test accuracy of the
penalty that a rule takes with the best in hindsight:

- evidence: the most likely one, with a floor of noise of a tenth (decision 15), a third, or none;
- GCV, with the freedom of the fit multiplied by 1, 1.2 or 1.4;
- robust GCV (Lukas): times γ + (1 − γ) tr(A²)/n, γ = 0.3;
- the corrected information criterion (AICc, Hurvich, Simonoff and Tsai);
- evidence, lowered by at most half a decade, or a decade, towards what GCV takes;
- ours: evidence, lowered towards what GCV takes, but to no fit of more freedom than a share of the
  rows: a third (decision 15), a quarter or a half.

It needs PyTorch, NumPy, safetensors and scikit-learn, and runs on a GPU if there is one.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from sklearn import datasets
from torch import Tensor

BUNDLED = Path("src/lastlayer/data/bundled")
WIDTHS, ROWS = (500, 1000, 2000, 5000, 10_000), (100, 300, 1000, 3000, 10_000, 50_000)
GRID = torch.logspace(-8, 2, 41, dtype=torch.float64)  # relative to the mean eigenvalue
SPECTRUM = 6000  # the largest matrix whose eigenvectors are found
Rows = tuple[Tensor, Tensor, Tensor, Tensor]  # training rows and labels, test rows and labels


class Curve:
    """What a rule may look at, for each penalty of the grid."""

    def __init__(self, values: Tensor, cross: Tensor, spread: float, n: int, level: float) -> None:
        self.n, self.spread = n, spread
        self.penalties = GRID.to(values) * level
        self.kept = values / (values + self.penalties[:, None])  # (penalties, rank)
        weight = cross.square().sum(dim=1)
        solved = weight / (values + self.penalties[:, None])
        self.error = (spread - solved.sum(dim=1)).clamp(min=0)
        self.residual = (spread - 2 * solved.sum(dim=1) + (solved * self.kept).sum(dim=1)).clamp(
            min=1e-12 * spread
        )
        self.volume = (values / self.penalties[:, None]).log1p().sum(dim=1)
        self.freedom = 1 + self.kept.sum(dim=1)

    def evidence(self, floor: float) -> Tensor:
        scale = self.error.clamp(min=max(floor * self.spread, 1e-300))
        return (self.n - 1) * (self.error / scale + scale.log()) + self.volume

    def cross_validation(self, factor: float = 1.0) -> Tensor:
        free = (1 - factor * self.freedom / self.n).clamp(min=0)
        return torch.where(free > 0, self.residual / free.clamp(min=1e-12).square(), torch.inf)

    def robust(self, share: float) -> Tensor:
        squared = (1 + self.kept.square().sum(dim=1)) / self.n
        return self.cross_validation() * (share + (1 - share) * squared)

    def information(self) -> Tensor:
        free = self.n - self.freedom - 2
        fine = self.residual.log() + 2 * (self.freedom + 1) / free.clamp(min=1e-9)
        return torch.where(free > 0, fine, torch.inf)

    def lowered(self, steps: int) -> int:
        """Return what GCV takes, but at most so many steps below the most likely one."""
        likely = int(self.evidence(0.1).argmin())
        low = max(likely - steps, 0)
        return low + int(self.cross_validation()[low : likely + 1].argmin())

    def guarded(self, share: float) -> int:
        """Return what GCV takes up to the most likely one, if the fit has not much freedom."""
        likely = int(self.evidence(0.1).argmin())
        safe = (self.freedom[:likely] <= share * self.n).nonzero().flatten().tolist()
        error = self.cross_validation().tolist()
        return min([likely, *reversed(safe)], key=lambda number: error[number])


RULES: dict[str, Callable[[Curve], int]] = {
    "evidence .1": lambda c: int(c.evidence(0.1).argmin()),
    "evidence .3": lambda c: int(c.evidence(0.3).argmin()),
    "evidence": lambda c: int(c.evidence(0.0).argmin()),
    "GCV": lambda c: int(c.cross_validation().argmin()),
    "GCV 1.2": lambda c: int(c.cross_validation(1.2).argmin()),
    "GCV 1.4": lambda c: int(c.cross_validation(1.4).argmin()),
    "robust GCV": lambda c: int(c.robust(0.3).argmin()),
    "AICc": lambda c: int(c.information().argmin()),
    "lowered 1/2": lambda c: c.lowered(2),
    "lowered 1": lambda c: c.lowered(4),
    "ours": lambda c: c.guarded(1 / 3),
    "a quarter": lambda c: c.guarded(1 / 4),
    "a half": lambda c: c.guarded(1 / 2),
    "half a decade less": lambda c: max(int(c.evidence(0.1).argmin()) - 2, 0),
}


def read(path: Path, label: str) -> Rows:
    """Read a set; without test rows of its own, every fourth row of a fixed order is one."""
    with np.load(path) as found:
        parts = dict(found)
    z = torch.from_numpy(parts["codes"] * parts["step"] + parts["low"])
    y = torch.from_numpy(np.unique(parts[f"column_{label}"], return_inverse=True)[1])
    return divided(z, y, torch.from_numpy(parts["test"]) if "test" in parts else None)


def divided(z: Tensor, y: Tensor, test: Tensor | None) -> Rows:
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    if test is None:
        test = torch.zeros(len(y), dtype=torch.bool)
        test[order[::4]] = True
    train = order[~test[order]]
    return z[train], y[train], z[test], y[test]


def bundled(name: str, label: str) -> Rows:
    state = load_file(BUNDLED / f"{name}.resnet20-cifar100.safetensors")
    z = torch.cat([state["train.z"], state["test.z"]]).float()
    y = torch.cat([state[f"train.{label}"], state[f"test.{label}"]]).long()
    return divided(z, y, torch.arange(len(y)) >= len(state["train.z"]))


def streams(folder: Path | None) -> Iterator[tuple[str, Rows]]:
    """Yield each set's rows."""
    for name, label in (("cifar10", "class"), ("cifar100", "fine"), ("cifar100", "coarse")):
        yield f"{name} {label}", bundled(name, label)
    for name in ("digits", "breast_cancer", "wine"):
        found = getattr(datasets, f"load_{name}")()
        z = torch.from_numpy(found.data).float()
        y = torch.from_numpy(found.target).long()
        yield name, divided((z - z.mean(dim=0)) / z.std(dim=0).clamp(min=1e-9), y, None)
    for path in sorted(folder.glob("*.npz")) if folder is not None else ():
        with np.load(path) as found:
            labels = [name.removeprefix("column_") for name in found if name.startswith("column_")]
        for label in labels:
            if label in ("y", "party", "era", "source", "coarse"):
                yield f"{path.stem} {label}", read(path, label)


def products(h: int, width: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return the features of unit length beside products of two random directions."""
    random = torch.Generator().manual_seed(1)
    wide = max(width - h, 1)
    a, b = (torch.randn(h, wide, generator=random, dtype=torch.float64).to(device) for _ in "ab")

    def mapped(z: Tensor) -> Tensor:
        z = z.to(device, torch.float64)
        z = z / z.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return torch.cat([2**0.5 * z, (z @ a) * (z @ b) / wide**0.5], dim=1)[:, :width]

    return mapped


def relu(first: Tensor, width: int, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return what `relu` makes of features centred and scaled to the first rows."""
    random = torch.Generator().manual_seed(1)
    drawn = torch.randn(first.shape[1], width, generator=random, dtype=torch.float64).to(device)
    first = first.to(device, torch.float64)
    centre, scale = first.mean(dim=0), first.std(dim=0, correction=0)
    scale = torch.where(scale > 1e-9, scale, 1.0)
    return lambda z: ((z.to(device, torch.float64) - centre) / scale @ drawn).relu_()


def cell(rows: Rows, n: int, mapped: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """Return the accuracy of each rule, and the best in hindsight."""
    z, y, test_z, test_y = rows
    x, n_classes = mapped(z[:n]), int(max(y.max(), test_y.max())) + 1
    share = y[:n].bincount(minlength=n_classes).to(x) / n
    targets = torch.nn.functional.one_hot(y[:n].to(x.device), n_classes).to(x) - share
    centre = x.mean(dim=0)
    x -= centre
    tested = torch.cat([mapped(part) - centre for part in test_z[:10_000].split(2000)])
    level = float(x.square().sum()) / x.shape[1]
    if n <= x.shape[1]:
        values, vectors = torch.linalg.eigh(x @ x.mT)
        root = values.clamp(min=values.max() * 1e-13).sqrt()
        tested, cross = tested @ (x.mT @ (vectors / root)), (vectors.mT @ targets) * root[:, None]
    else:
        values, vectors = torch.linalg.eigh(x.mT @ x)
        tested, cross = tested @ vectors, vectors.mT @ (x.mT @ targets)
    values = values.clamp(min=0)
    curve = Curve(values, cross, float(targets.square().sum()), n, level)
    right = [
        float(
            ((tested @ (cross / (values + penalty)[:, None]) + share).argmax(dim=1).cpu()
             == test_y[:10_000]).double().mean()
        )
        for penalty in curve.penalties
    ]  # fmt: skip
    return {rule: 100 * right[choose(curve)] for rule, choose in RULES.items()} | {
        "best": 100 * max(right)
    }


def main() -> None:
    """Print a row for each stream, map, width and number of rows, as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    out = csv.writer(sys.stdout)
    out.writerow(["stream", "map", "width", "rows", *RULES, "best"])
    for name, rows in streams(asked.sets):
        h = rows[0].shape[1]
        for width in (w for w in asked.widths if w > h):
            for n in sorted({min(n, len(rows[1])) for n in asked.rows}):
                if min(n, width) > SPECTRUM and not name.startswith("cifar10 "):
                    continue
                maps = {"products": products(h, width, device)}
                if width <= 2000:
                    maps["relu"] = relu(rows[0][: min(n, 1000)], width, device)
                for kind, mapped in maps.items():
                    found = cell(rows, n, mapped)
                    numbers = [f"{found[rule]:.2f}" for rule in (*RULES, "best")]
                    out.writerow([name, kind, width, n, *numbers])
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
