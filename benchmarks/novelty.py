"""How well heads tell inputs of no known class: which score, and which head.

python -m benchmarks.novelty [--heads mean slda …] [--features cifar10 cifar100] [--every 4]
python -m benchmarks.novelty --sets DIR [--heads mean slda …]      # texts, made by regret_sets

A fifth of the classes of each bundled set is left out, five times, so that each class is left out
once; a head learns the training rows of the others, or one in so many, and its scores of all test
rows are compared. With --sets, also 1,000 texts of other sets are strange ("others"), to a head
that has learned all classes of a set. AUROC: how often a row of a class left out is stranger than
one of a known class. FPR: the share of rows of classes left out that are let in where 95 % of the
known ones are. Means of the five.
The scores: "energy" −log Σ exp(logit), "largest" −max logit, "probability" −max softmax, what the
head itself measures ("own"), and others that its statistics give.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.regret_sets import TEXTS, read_set
from sklearn.metrics import roc_auc_score
from torch import Tensor

import lastlayer as ll
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.heads import Head
from lastlayer.heads.maps.mapped_head import MappedHead
from lastlayer.heads.statistics.statistics_head import StatisticsHead

FOLDS = 5
STRANGERS = 1000


def candidates(head: Head, z: Tensor) -> Iterator[tuple[str, Tensor]]:
    logits, own = head.judge(z)
    logits = logits[:, head.seen].double()
    yield "own", own
    if head.name == "knn":  # its logits are shares: their energy is 0
        squared = head._nearest(z).squared
        yield "nearest neighbour", squared[:, 0].sqrt()
        yield "farthest of k", squared[:, -1].sqrt()
    else:
        yield "energy", -torch.logsumexp(logits, dim=1)
        yield "largest", -logits.amax(dim=1)
    yield "probability", -torch.softmax(logits, dim=1).amax(dim=1)
    if isinstance(head, MappedHead):
        feature_map, inner = head._reading()
        parts = z.split(1000)
        near, relative = inner.mahalanobis(), inner.relative_mahalanobis()
        yield "distance", torch.cat([near.novelty(feature_map(part)) for part in parts])
        yield "relative distance", torch.cat([relative.novelty(feature_map(p)) for p in parts])
    elif isinstance(head, StatisticsHead) and head.statistics.kind in ("pooled", "per_class"):
        yield "distance", head.mahalanobis().novelty(z)
        yield "relative distance", head.relative_mahalanobis().novelty(z)
    if head.name == "mean":
        s = head.statistics
        deviation = (s.spread / s.count)[head.seen].sqrt()
        yield "distance in deviations", (-logits / deviation).amin(dim=1)


def trained(name: str, z: Tensor, y: Tensor) -> Head:
    head: Head = ll.HeadClassifier(name, random_state=0).fit(z.numpy(), y.numpy()).head_
    return head


Trial = tuple[Tensor, Tensor, Tensor, Any]  # rows to learn, their classes, rows to score, strange?


def left_out(data: ll.Features, every: int = 1) -> Iterator[Trial]:
    """Leave a fifth of the classes out, five times."""
    order = torch.randperm(data.n_classes, generator=torch.Generator().manual_seed(0))
    for gone in order.chunk(FOLDS):
        known = ~torch.isin(data.train.y, gone) & (torch.arange(len(data.train)) % every == 0)
        strange = torch.isin(data.test.y, gone).numpy()
        yield data.train.z[known], data.train.y[known], data.test.z, strange


def others(data: ll.Features, texts: Tensor) -> Iterator[Trial]:
    """Take texts of other sets for strange."""
    picked = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))[:STRANGERS]
    rows = torch.cat([data.test.z, texts[picked]])
    yield data.train.z, data.train.y, rows, np.arange(len(rows)) >= len(data.test)


def trials(features: Sequence[str], sets: Path | None, every: int) -> dict[str, list[Trial]]:
    """Return what is to be measured, by name."""
    if sets is None:
        return {name: list(left_out(ll.load_features(name), every)) for name in features}
    data = {name: read_set(sets / f"{name}.npz") for name in TEXTS}
    data["snippets"] = data["snippets"].with_label("source")
    found = {}
    for name, own in data.items():
        if own.n_classes > 2:
            found[f"{name}, classes left out"] = list(left_out(own))
        texts = torch.cat([other.train.z for key, other in data.items() if key != name])
        found[f"{name}, other texts"] = list(others(own, texts))
    return found


def measure(name: str, given: list[Trial]) -> dict[str, tuple[float, float]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for z, y, rows, strange in given:
        head = trained(name, z.float(), y)
        for score, value in candidates(head, rows.double()):
            novelty = value.numpy()
            limit = np.quantile(novelty[~strange], 0.95)
            numbers = roc_auc_score(strange, novelty), np.mean(novelty[strange] <= limit)
            found.setdefault(score, []).append(numbers)
    return {score: tuple(100 * np.mean(n, axis=0)) for score, n in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", nargs="+", default=[*HEADS, "cosine+single"])
    parser.add_argument("--features", nargs="+", default=["cifar10", "cifar100"])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--sets", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    given = trials(asked.features, asked.sets, asked.every)
    print(f"| head | score | {' | '.join(f'{name}: AUROC | FPR' for name in given)} |")
    print("|---" * (2 + 2 * len(given)) + "|")
    for name in asked.heads:
        tables = [measure(name, some) for some in given.values()]
        for score in tables[0]:
            cells = " | ".join(f"{t[score][0]:.1f} | {t[score][1]:.1f}" for t in tables)
            print(f"| `{name}` | {score} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
