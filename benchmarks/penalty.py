"""The penalty of ridge along learning curves, with and without copies among the rows.

    python -m benchmarks.penalty [--draws 20] [--floors 0.1 0.03 0.01]

Rows are drawn without regard to classes, from 5 a class to all; 0, 1 and 5 % of them are copies of
others with their labels, exact or with noise of 1e-4 of a feature's deviation. Each cell is the
accuracy on rows that were not drawn, of the penalty that `choose_penalty` takes from the moments,
beside three others from the same grid: by exact leave-one-out squared error on the rows, by
generalised cross-validation, and the best in hindsight. Wide features are the bundled ones or
scikit-learn's behind a fixed random map. `--floors` compares shares of noise.

It fails if the 95 % limit of what the first floor loses to leave-one-out, from pairs, exceeds a
point anywhere, or if its mean falls by more than that as rows are added; statistics after
forgetting are those of the rows that stay. Three things are shown, not judged: contradictory copies
(another label), which sums cannot count; every row learned twice, which misleads leave-one-out; and
columns in units of their own, where not every direction is as likely to matter.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from lastlayer.data import load_features
from lastlayer.heads import make_map
from lastlayer.heads.maps.feature_map import FeatureMap
from lastlayer.heads.statistics.least_squares import Moments, reduce
from lastlayer.heads.statistics.penalty import NOISE, PENALTIES, choose_penalty

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
MOST_ROWS, TESTED, FEW = 1200, 1500, 50
COPIES = {  # share of the rows, noise in deviations, whether they keep their label
    "none": (0.0, 0.0, True),
    "1 %": (0.01, 0.0, True),
    "1 % near": (0.01, 1e-4, True),
    "5 %": (0.05, 0.0, True),
    "5 % near": (0.05, 1e-4, True),
    "5 % wrong": (0.05, 0.0, False),
    "each twice": (0.5, 0.0, True),
}


@dataclass(frozen=True)
class Set:
    """Features of one set, and the map in front of the head."""

    name: str
    z: Array  # (n, h)
    y: Labels  # (n,)
    map: str | None = None
    width: int = 0
    judged: bool = True

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    @property
    def features(self) -> int:
        return self.width or self.z.shape[1]

    @cached_property
    def mapping(self) -> FeatureMap | None:
        if self.map is None:
            return None
        return make_map(self.map, self.z.shape[1], self.width).fit(torch.from_numpy(self.z))

    def mapped(self, z: Array) -> Array:
        return z if self.mapping is None else self.mapping(torch.from_numpy(z)).numpy()

    def rows(self) -> list[int]:
        """Return sizes from 5 a class to all, and around the number of features."""
        c, h = self.n_classes, self.features
        most = min(MOST_ROWS, int(0.7 * len(self.y)))
        asked = {5 * c, 10 * c, 20 * c, h - 10, h + 1, 2 * h, most}
        return sorted(n for n in asked if 5 * c <= n <= most)


def sets() -> Iterator[Set]:
    digits, wine, cancer = load_digits(), load_wine(), load_breast_cancer()
    yield Set("digits", digits.data, digits.target)
    yield Set("digits, relu 400", digits.data, digits.target, "relu", 400)
    for name, bunch in (("wine", wine), ("breast cancer", cancer)):
        z = (bunch.data - bunch.data.mean(axis=0)) / bunch.data.std(axis=0)
        yield Set(f"{name}, own units", bunch.data, bunch.target, judged=False)
        yield Set(name, z, bunch.target)
        yield Set(f"{name}, fourier 200", z, bunch.target, "fourier", 200)
    for name, label in (("cifar10", "fine"), ("cifar100", "coarse")):
        test = load_features(name, label=label if name == "cifar100" else None).test
        z, y = test.z.double().numpy()[:5000], test.y.numpy()[:5000]
        yield Set(f"{name} {label}, relu 400".replace(" fine", ""), z, y, "relu", 400)


def with_copies(
    z: Array, y: Labels, kind: str, random: np.random.Generator
) -> tuple[Array, Labels]:
    """Replace the last rows by copies of others."""
    share, noise, consistent = COPIES[kind]
    n = min(max(round(share * len(y)), 1), len(y) // 2) if share else 0
    copied = random.permutation(len(y) - n)[:n]
    shaken = z[copied] + noise * z.std(axis=0) * random.normal(size=(n, z.shape[1]))
    other = 0 if consistent else 1
    labels = (y[copied] + other) % (y.max() + 1)
    first = slice(0, len(y) - n)
    return np.concatenate([z[first], shaken]), np.concatenate([y[first], labels])


class Fit:
    """All penalties of one draw: what each rule would choose, and how accurate it would be."""

    def __init__(self, x: Array, y: Labels, n_classes: int) -> None:
        self.centre, targets = x.mean(axis=0), np.eye(n_classes)[y]
        self.share = targets.mean(axis=0)
        x, self.targets = x - self.centre, targets - self.share
        self.n, spread = len(y), float(np.square(self.targets).sum())
        gram, cross = torch.from_numpy(x.T @ x), torch.from_numpy(x.T @ self.targets)
        self.moments = Moments(gram, cross, spread, float(self.n), self.n)
        self.reduced = reduce(self.moments)
        self.penalties = (PENALTIES * self.moments.level).tolist()
        self.left, values, _ = np.linalg.svd(x, full_matrices=False)
        self.squares = np.square(values)

    def chosen(self, floor: float) -> float:
        return choose_penalty(self.moments, self.reduced, floor)

    def by_rows(self) -> tuple[float, float]:
        """Choose by leave-one-out and by generalised cross-validation, from the rows."""
        one_out, generalised = [], []
        turned = self.left.T @ self.targets
        for penalty in self.penalties:
            kept = self.squares / (self.squares + penalty)
            rest = self.targets - self.left @ (kept[:, None] * turned)
            leverage = 1 / self.n + np.square(self.left) @ kept
            free = np.maximum(1 - leverage, 1e-12)
            one_out.append(np.square(rest / free[:, None]).sum())
            trace = max(1 - (1 + kept.sum()) / self.n, 1e-12)
            generalised.append(max(np.square(rest).sum() / self.n, 1e-12) / trace**2)
        return self.penalties[np.argmin(one_out)], self.penalties[np.argmin(generalised)]

    def accuracy(self, x: Array, y: Labels) -> dict[float, float]:
        """Compute the accuracy of every penalty."""
        solutions = [self.reduced.solve(penalty) for penalty in self.penalties]
        weights = torch.cat(solutions, dim=1).numpy()
        logits = ((x - self.centre) @ weights).reshape(len(x), len(solutions), -1) + self.share
        right = 100 * (logits.argmax(axis=2) == y[:, None]).mean(axis=0)
        return dict(zip(self.penalties, right.tolist(), strict=True))


def accuracies(data: Set, n: int, kind: str, draw: int, floors: list[float]) -> list[float]:
    """Return the accuracy by leave-one-out, by GCV and in hindsight, and by each floor."""
    order = np.random.default_rng(draw).permutation(len(data.y))
    z, y = with_copies(data.z[order[:n]], data.y[order[:n]], kind, np.random.default_rng([draw, n]))
    tested = order[n:][-TESTED:]
    fit = Fit(data.mapped(z), y, data.n_classes)
    found = fit.accuracy(data.mapped(data.z[tested]), data.y[tested])
    rules = [*fit.by_rows(), *(fit.chosen(floor) for floor in floors)]
    loo, gcv, *ours = (found[penalty] for penalty in rules)
    return [loo, gcv, max(found.values()), *ours]


def lost(ours: Array, theirs: Array) -> tuple[float, float]:
    """Return the points lost on average, and their 95 % limit, from pairs."""
    pairs = theirs - ours
    far = student.ppf(0.95, len(pairs) - 1) * pairs.std(ddof=1) / np.sqrt(len(pairs))
    return float(pairs.mean()), float(pairs.mean() + far)


def curve(data: Set, kind: str, draws: int, floors: list[float]) -> Iterator[str]:
    """Print a learning curve; yield what is wrong with it at the first of the floors."""
    before = 0.0
    for n in data.rows():
        times = draws if n > FEW else 3 * draws  # cheap, and noisy
        cells = np.array([accuracies(data, n, kind, draw, floors) for draw in range(times)])
        means, losses = cells.mean(axis=0), [lost(ours, cells[:, 0]) for ours in cells.T[3:]]
        line = f"{data.name:26}{n:5d} {kind:10}{means[0]:8.1f}{means[1]:7.1f}{means[2]:7.1f} "
        line += " ".join(
            f"{mean:11.1f} {points:6.2f} {limit:5.2f}"
            for mean, (points, limit) in zip(means[3:], losses, strict=True)
        )
        print(line, flush=True)
        judged = data.judged and kind not in ("5 % wrong", "each twice")
        if judged and losses[0][1] > 1:
            yield f"{data.name}, {n} rows, copies {kind}: it loses up to {losses[0][1]:.2f}"
        if judged and means[3] < before - 1:
            yield f"{data.name}, {n} rows, copies {kind}: it falls from {before:.1f}"
        before = means[3]


def main() -> None:
    """Print the curves, and fail where they lose or fall."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=20, help="three times as many up to 50 rows")
    parser.add_argument("--floors", type=float, nargs="+", default=[NOISE])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"mean accuracy over {asked.draws} draws; lost: to leave-one-out, with its 95 % limit")
    names = " ".join(f"{f'noise {floor:g}':>11}   lost limit" for floor in asked.floors)
    print(f"{'':26}{'rows':>5} {'copies':10}{'one out':>8}{'GCV':>7}{'best':>7} {names}")
    curves = (curve(data, kind, asked.draws, asked.floors) for data in sets() for kind in COPIES)
    if wrong := list(chain.from_iterable(curves)):
        raise SystemExit("\n".join(wrong))
    print("no curve falls, and none loses more than a point to leave-one-out")


if __name__ == "__main__":
    main()
