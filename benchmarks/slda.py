"""Streaming LDA in batches beside the usual one-sample update: ratios, in one run, float64.

python benchmarks/slda.py
"""

import statistics
import time

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from lastlayer.heads import make_head

BATCH = 2000


class OneSampleLda:
    """The usual streaming LDA written plainly: one update of Σ and of a mean for each sample."""

    def __init__(self, in_features: int, n_classes: int) -> None:
        self.sigma = torch.zeros(in_features, in_features, dtype=torch.float64)
        self.mean = torch.zeros(n_classes, in_features, dtype=torch.float64)
        self.count = torch.zeros(n_classes, dtype=torch.float64)
        self.t = 0

    def observe(self, z: Tensor, y: Tensor) -> None:
        for x, c in zip(z, y, strict=True):
            v = x - self.mean[c]
            delta = torch.outer(v, v) * (self.t / (self.t + 1))
            self.sigma = (self.t * self.sigma + delta) / (self.t + 1)
            self.mean[c] += v / (self.count[c] + 1)
            self.count[c] += 1
            self.t += 1


def seconds_per_sample(head: object, batches: list[tuple[Tensor, Tensor]]) -> float:
    start = time.perf_counter()
    for z, y in batches:
        head.observe(z, y)  # type: ignore[attr-defined]
    return (time.perf_counter() - start) / sum(len(y) for _, y in batches)


def main() -> None:
    torch.set_num_threads(1)  # threads of a busy machine wait for each other: compare without
    limits = threadpool_limits(1)
    print(f"learning, batches of {BATCH:,}, float64, one thread; the one-sample update over ours")
    for h in (64, 512):
        torch.manual_seed(0)
        batches = [
            (torch.randn(BATCH, h, dtype=torch.float64), torch.randint(10, (BATCH,)))
            for _ in range(10)
        ]
        ratios: dict[str, list[float]] = {"exact": [], "paper": []}
        for _ in range(5):
            plain = seconds_per_sample(
                OneSampleLda(h, 10), [(z[:500], y[:500]) for z, y in batches[:1]]
            )
            for preset, values in ratios.items():
                head = make_head("slda", in_features=h, n_classes=10, preset=preset)  # type: ignore[arg-type]
                values.append(plain / seconds_per_sample(head, batches))
        found = ", ".join(f"{p} {statistics.median(v):.0f} ×" for p, v in ratios.items())
        print(f"  {h:4d} features: {found}")
    limits.restore_original_limits()


if __name__ == "__main__":
    main()
