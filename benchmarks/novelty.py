"""How well heads tell inputs of no known class: which score, and which head.

python -m benchmarks.novelty [--heads mean slda …] [--features cifar10 cifar100] [--every 4]

A fifth of the classes of each bundled set is left out, five times, so that each class is left out
once; a head learns the training rows of the others, or one in so many, and its scores of all test
rows are compared. AUROC: how often a row of a class left out is stranger than one of a known class.
FPR: the share of rows of classes left out that are let in where 95 % of the known ones are. Means
of the five.
The scores: "energy" −log Σ exp(logit), "largest" −max logit, "probability" −max softmax, what the
head itself measures ("own"), and others that its statistics give.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

import lastlayer as ll
from lastlayer.catalogue import HEADS
from lastlayer.heads import Head
from lastlayer.heads.maps.mapped_head import MappedHead
from lastlayer.heads.statistics.statistics_head import StatisticsHead

FOLDS = 5


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
        measure = inner.mahalanobis()
        yield "distance", torch.cat([measure.novelty(feature_map(part)) for part in parts])
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


def measure(features: str, name: str, every: int) -> dict[str, tuple[float, float]]:
    data = ll.load_features(features)
    order = torch.randperm(data.n_classes, generator=torch.Generator().manual_seed(0))
    found: dict[str, list[tuple[float, float]]] = {}
    for gone in order.chunk(FOLDS):
        known = ~torch.isin(data.train.y, gone) & (torch.arange(len(data.train)) % every == 0)
        head = trained(name, data.train.z[known].float(), data.train.y[known])
        strange = torch.isin(data.test.y, gone).numpy()
        for score, value in candidates(head, data.test.z.double()):
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
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| head | score | {' | '.join(f'{f}: AUROC | FPR' for f in asked.features)} |")
    print("|---" * (2 + 2 * len(asked.features)) + "|")
    for name in asked.heads:
        tables = [measure(features, name, asked.every) for features in asked.features]
        for score in tables[0]:
            cells = " | ".join(f"{t[score][0]:.1f} | {t[score][1]:.1f}" for t in tables)
            print(f"| `{name}` | {score} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
