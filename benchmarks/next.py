"""Accuracy against the number of labels, for ways to choose which rows to label next.

    python -m benchmarks.next --sets DIR [--splits 5] [--steps 10] [--rivals]

DIR is what `python -m benchmarks.regret_sets` makes. Each split begins with 2 labels of every
class, drawn at random, and adds in even steps until there are 20 a class; a head (slda) learns them
and answers the test rows. `labels` is how many labels a strategy needs for the accuracy that random
reaches with 20 a class, as a share of those, interpolated between steps; 1.20: it ends below.
coverage is k-means of what has no label yet; CoreSet is that of scikit-activeml (PyPI).
"""

import argparse
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from benchmarks.audit import streams
from torch import Tensor

import lastlayer as ll
from lastlayer.labels import next_rows

BEGIN, END = 2, 20  # labels of a class
HEAD = {"name": "slda"}
MOST = 4000  # rows of a pool, and of a test set

Choose = Callable[[ll.HeadClassifier, Tensor, Tensor, Tensor, int, int], Tensor]


def ours(strategy: str) -> Choose:
    def choose(
        clf: ll.HeadClassifier, pool: Tensor, z: Tensor, y: Tensor, count: int, seed: int
    ) -> Tensor:
        found = next_rows(clf, pool, count, strategy=strategy, seed=seed)
        return torch.from_numpy(found["row"].to_numpy().copy())

    return choose


def core_set(
    clf: ll.HeadClassifier, pool: Tensor, z: Tensor, y: Tensor, count: int, seed: int
) -> Tensor:
    """Choose rows farthest from all that have labels (scikit-activeml)."""
    from skactiveml.pool import CoreSet  # noqa: PLC0415  (only this needs it)

    both = torch.cat([z, pool]).numpy()
    known = np.concatenate([y.numpy().astype(float), np.full(len(pool), np.nan)])
    chosen = CoreSet(random_state=seed).query(both, known, batch_size=count)
    return torch.from_numpy(np.asarray(chosen) - len(z))


def run(z: Tensor, y: Tensor, strategy: Choose, steps: int, seed: int) -> list[tuple[int, float]]:
    """Return how many labels there were, and the accuracy on the test rows, at each step."""
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(y), generator=random)
    test, pool = order[: min(MOST, len(y) // 3)], order[min(MOST, len(y) // 3) :][:MOST]
    classes = y[pool].unique()
    have = torch.cat([pool[y[pool] == c][:BEGIN] for c in classes])
    end = min(END * len(classes), len(pool) // 2)
    sizes = np.linspace(len(have), end, steps + 1).round().astype(int)
    curve = []
    for size in sizes:
        if size > len(have):
            left = pool[~torch.isin(pool, have)]
            clf = fitted(z[have], y[have])
            chosen = strategy(clf, z[left], z[have], y[have], int(size) - len(have), seed)
            have = torch.cat([have, left[chosen]])
        clf = fitted(z[have], y[have])
        right = clf.predict(z[test].numpy()) == y[test].numpy()
        curve.append((len(have), float(right.mean())))
    return curve


def fitted(z: Tensor, y: Tensor) -> ll.HeadClassifier:
    return ll.HeadClassifier(HEAD["name"]).fit(z.numpy(), y.numpy())


def needed(curve: list[tuple[int, float]], goal: float) -> float:
    """Return how many labels reach an accuracy; a fifth more than all of them: not enough."""
    for (n, was), (m, now) in pairwise(curve):
        if now >= goal:
            share = (goal - was) / (now - was) if now > was else 1.0
            return n + min(max(share, 0.0), 1.0) * (m - n)
    return curve[-1][0] * 1.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--head", default="slda")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    HEAD["name"] = asked.head
    ways = {name: ours(name) for name in ("random", "margin", "informative", "coverage")}
    if asked.rivals:
        ways["CoreSet"] = core_set
    print(f"| set | labels at the end | {' | '.join(f'{w}: accuracy | labels' for w in ways)} |")
    print("|---|---:" + "|---:|---:" * len(ways) + "|", flush=True)
    for name, read in streams(asked.sets):
        if asked.only and name not in asked.only:
            continue
        z, y = read()
        y = y.unique(return_inverse=True)[1]
        curves = {
            way: [run(z, y, choose, asked.steps, seed) for seed in range(asked.splits)]
            for way, choose in ways.items()
        }
        mean = {
            way: [(n[0][0], float(np.mean([x[1] for x in n]))) for n in zip(*c, strict=True)]
            for way, c in curves.items()
        }
        goal, end = mean["random"][-1][1], mean["random"][-1][0]
        cells = [f"{100 * m[-1][1]:.1f} | {needed(m, goal) / end:.2f}" for m in mean.values()]
        print(f"| {name} | {end} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
