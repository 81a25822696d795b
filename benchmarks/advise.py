"""Advise beside compare with 8 orders, and beside a loop over scikit-learn's classifiers.

    python -m benchmarks.advise [--tasks 10] [--rows 15000] [--only advise]
    python -m benchmarks.advise --rows 2535 --features 1280 --classes 20 --tasks 5 --only advise

All three see the same made embeddings of unit length (384 features, 150 classes, or as many as are
asked for). The loop judges scikit-learn's candidates on the same held-out rows, everything at once,
which is what a user would write by hand. Ratios of CPU time only: they depend little on what else
the machine does.
"""

import argparse
import resource
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import torch
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.svm import LinearSVC

import lastlayer as ll
from lastlayer.evaluate.splits import splits_of
from lastlayer.evaluate.stream import lay_out

CANDIDATES = (
    NearestCentroid(),
    LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    KNeighborsClassifier(),
    GaussianNB(),
    RidgeClassifier(),
    SGDClassifier(loss="log_loss"),
    LinearSVC(),
    LogisticRegression(max_iter=200),
)


def embeddings(n: int, n_classes: int = 150, h: int = 384) -> ll.Features:
    """Make embeddings of unit length around class means."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(n) % n_classes
    z = 0.35 * torch.randn(n_classes, h, generator=random)[y]
    z += 2.2 * torch.randn(n, h, generator=random)
    z /= z.norm(dim=1, keepdim=True)
    return ll.Features.from_arrays(z, y, test=0.2)


def loop(data: ll.Features, scenario: str) -> dict[str, float]:
    """Judge scikit-learn's classifiers on the rows that advise holds out."""
    stream = lay_out(data, scenario)
    z, y = stream.z.numpy(), stream.y.numpy()
    right: dict[str, list[float]] = {}
    for split in splits_of(stream):
        rows, held = torch.cat(split.tasks).numpy(), split.held.numpy()
        for model in CANDIDATES:
            fitted = clone(model).fit(z[rows], y[rows])
            right.setdefault(type(model).__name__, []).append(fitted.score(z[held], y[held]))
    return {name: sum(shares) / len(shares) for name, shares in right.items()}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds that work takes, and its result."""
    began = process_time()
    found = work()
    return process_time() - began, found


def main() -> None:
    """Print the three times and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--rows", type=int, default=15_000, help="training and test rows")
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--classes", type=int, default=150)
    parser.add_argument("--only", choices=["advise"], help="leave out the others")
    asked = parser.parse_args()
    data = embeddings(asked.rows, asked.classes, asked.features)
    scenario = f"incremental:{asked.tasks}"
    began = perf_counter()
    advising, advice = timed(lambda: ll.advise(data, scenario))
    took = perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{advice.answer}\nadvise: {advising:.0f} s of CPU, {took:.0f} s, at most {most:.2f} GB")
    if asked.only:
        return
    looping, shares = timed(lambda: loop(data, scenario))
    best = max(shares, key=lambda name: shares[name])
    print(f"scikit-learn: {looping:.0f} s of CPU; best {best} with {100 * shares[best]:.1f} %")
    comparing, _ = timed(lambda: ll.compare(data, scenario, orders=range(8)))
    print(f"compare, 8 orders: {comparing:.0f} s of CPU")
    print(
        f"advise takes {advising / comparing:.2f} of compare, {advising / looping:.2f} of the loop"
    )


if __name__ == "__main__":
    main()
