"""How far the best head is from the best classifier of any kind, retrained on everything.

    python -m benchmarks.limits [--sets DIR] [--out results/benchmarks/limits.md]
    python -m benchmarks.limits --rows 5000 --widths 5000 --fourier 2048 --tuned 2500   # on a CPU

DIR is what `python -m benchmarks.regret_sets` makes; without it the bundled sets and scikit-learn's
are taken. References are retrained in the same run: softmax regression, linear and over 8,192
Fourier features; exact Gaussian kernel ridge regression; a network of two layers (AdamW, dropout).
Their settings, the best of them, and the head among the candidates are chosen on a fifth of the
training rows; then each learns all of them, and is tested once. Intervals are paired, 95 %.
With --rows, fewer rows are drawn, and at most 4,000 are tested on. It needs PyTorch, NumPy,
safetensors and scikit-learn beside lastlayer, and for all rows a GPU.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.penalty_rules import Rows, streams
from torch import Tensor, nn

from lastlayer.catalogue import MAP_ROWS, card_of
from lastlayer.evaluate.softmax import reference
from lastlayer.heads import make_head, make_map
from lastlayer.heads.neighbours.kernel_factor import Kernel

SMALL, ALL = 400e6, 1 << 36  # bytes of statistics; bytes that may be used here
Predict = Callable[[Tensor], Tensor]  # queries to classes
Fit = Callable[[Tensor, Tensor, int], Predict]


def of_head(name: str, options: dict[str, Any], z: Tensor, y: Tensor, n_classes: int) -> Predict:
    head = make_head(name, z.shape[1], n_classes, **options).to(z.device)
    for rows, labels in zip(z.split(4096), y.split(4096), strict=True):
        head.observe(rows, labels)
    return head.predict


def candidates(h: int, n_classes: int, widths: Sequence[int]) -> Iterator[tuple[str, float, Fit]]:
    """Yield the name of each head, the bytes of its state (0: it keeps rows), and its fit."""
    wider = [f"{name}@{width}" for name in ("random_ridge", "random_slda") for width in widths]
    for name in ("ridge", "slda", "random_ridge", "random_slda", *wider):
        yield name, card_of(name).size(h, n_classes, MAP_ROWS), partial(of_head, name, {})
    yield "kernel_ridge", 0, partial(of_head, "kernel_ridge", {"budget": ALL})


def of_softmax(width: int, z: Tensor, y: Tensor, n_classes: int) -> Predict:
    feature_map = (
        make_map("fourier", z.shape[1], width).to(z.device).fit(z[:1000]) if width else None
    )
    return reference(z, y, n_classes, map=feature_map, quick=True).predict


class Kernels:
    """Exact kernel ridge regression without an approximation of any kind."""

    def __init__(self, z: Tensor, y: Tensor, n_classes: int, bandwidth: float) -> None:
        self.kernel = Kernel(z[:1000].double().mean(dim=0), bandwidth)
        self.points = self.kernel.points(z)
        self.matrix = self.kernel.between(self.points, self.points)
        targets = torch.nn.functional.one_hot(y, n_classes).double()
        self.targets = torch.cat([targets, torch.ones_like(targets[:, :1])], dim=1)

    def solve(self, penalty: float) -> Predict:
        self.matrix.diagonal().fill_(1 + penalty)
        root = torch.linalg.cholesky(self.matrix)
        solved = torch.cholesky_solve(self.targets, root)
        bias = solved[:, :-1].sum(dim=0) / solved[:, -1].sum()
        dual = solved[:, :-1] - torch.outer(solved[:, -1], bias)

        def predict(z: Tensor) -> Tensor:
            parts = (self.kernel.between(self.kernel.points(q), self.points) for q in z.split(2000))
            return torch.cat([(part @ dual + bias).argmax(dim=1) for part in parts])

        return predict


def kernel_grid(z: Tensor) -> Iterator[tuple[float, float]]:
    centred = z.double() - z.double().mean(dim=0)
    spread = math.sqrt(float(centred.square().sum(dim=1).mean()))
    for k in range(-4, 3):
        for exponent in range(-7, 3):
            yield spread * 2 ** (k / 2), 10 ** (exponent / 2)


def tuned_kernel(
    train: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], n_classes: int, most: int
) -> Fit:
    """Return the kernel whose bandwidth and penalty get most held-out rows right."""
    best, chosen, made = -1.0, (1.0, 1.0), (0.0, None)
    z, y = (part[:most] for part in train)
    for bandwidth, penalty in kernel_grid(z):
        if made[0] != bandwidth:
            made = bandwidth, Kernels(z, y, n_classes, bandwidth)
        right = accuracy(made[1].solve(penalty), held)
        if right > best:
            best, chosen = right, (bandwidth, penalty)
    return lambda z, y, n_classes: Kernels(z, y, n_classes, chosen[0]).solve(chosen[1])


def of_network(hidden: int, dropout: float, z: Tensor, y: Tensor, n_classes: int) -> Predict:
    """Train two layers on standardised features for 40 epochs, the rate falling as a cosine."""
    torch.manual_seed(0)
    centre, scale = z.mean(dim=0), z.std(dim=0).clamp(min=1e-6)
    net = nn.Sequential(
        nn.Dropout(dropout / 2), nn.Linear(z.shape[1], hidden), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(hidden, n_classes),
    ).to(z.device)  # fmt: skip
    size, epochs = min(256, max(len(y) // 8, 8)), 40
    steps = epochs * -(-len(y) // size)
    adam = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.05)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(y), device=z.device).split(size):
            adam.zero_grad(set_to_none=True)
            logits = net((z[rows] - centre) / scale)
            nn.functional.cross_entropy(logits, y[rows]).backward()
            adam.step()
            falling.step()
    net.eval()

    def predict(queries: Tensor) -> Tensor:
        with torch.no_grad():
            found: Tensor = net((queries - centre) / scale).argmax(dim=1)
        return found

    return predict


def accuracy(predict: Predict, rows: tuple[Tensor, Tensor]) -> float:
    return 100 * float((predict(rows[0]) == rows[1]).double().mean())


def best_of(names: list[str], held: dict[str, float]) -> str:
    return max(names, key=lambda name: held[name])


def gap(theirs: Tensor, ours: Tensor) -> str:
    """Write by how many points one is more often right than another, with a paired interval."""
    apart = 100 * (theirs.double() - ours.double())
    reach = 1.96 * float(apart.std()) / math.sqrt(len(apart))
    return f"{float(apart.mean()):.1f} ± {reach:.1f}"


def line(name: str, rows: Rows, device: torch.device, asked_for: argparse.Namespace) -> str:
    """Choose on held-out rows, test once, and write a row of the table."""
    z, y, test_z, test_y = (part.to(device) for part in rows)
    if asked_for.rows is not None:
        z, y = z[: asked_for.rows], y[: asked_for.rows]
        test_z, test_y = test_z[:4000], test_y[:4000]
    z, test_z = z.float(), test_z.float()
    n_classes, n = int(max(y.max(), test_y.max())) + 1, len(y)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(device)
    out, kept = order[: n // 5], order[n // 5 :]
    train, held_rows = (z[kept], y[kept]), (z[out], y[out])
    references: dict[str, Fit] = {
        "softmax": partial(of_softmax, 0),
        "softmax, Fourier": partial(of_softmax, asked_for.fourier),
        "kernel": tuned_kernel(train, held_rows, n_classes, asked_for.tuned),
    }
    networks = {(h, d): partial(of_network, h, d) for h in (512, 2048) for d in (0.3, 0.6)}
    by_net = {key: accuracy(fit(*train, n_classes), held_rows) for key, fit in networks.items()}
    references["network"] = networks[max(by_net, key=lambda key: by_net[key])]
    heads = {
        label: (size, fit)
        for label, size, fit in candidates(z.shape[1], n_classes, asked_for.widths)
    }
    fits = references | {label: fit for label, (_, fit) in heads.items()}
    held = {label: accuracy(fit(*train, n_classes), held_rows) for label, fit in fits.items()}
    small = best_of([k for k, (size, _) in heads.items() if 0 < size <= SMALL], held)
    wide = best_of([k for k, (size, _) in heads.items() if size > 0], held)
    free = best_of([*heads], held)
    top = best_of([*references], held)
    asked = {*references, small, wide, free, "random_ridge", "slda", "ridge"}
    right = {label: fits[label](z, y, n_classes)(test_z) == test_y for label in asked}
    score = {label: f"{100 * float(found.double().mean()):.1f}" for label, found in right.items()}
    plain = best_of(["slda", "ridge"], held)
    cells = [
        name, str(n), str(z.shape[1]), *(score[label] for label in references), top,
        *(f"{score[one]} {one}: {gap(right[top], right[one])}" for one in (small, wide, free)),
        f"{score['random_ridge']}: {gap(right[plain], right['random_ridge'])}",
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


HEADER = (
    "stream", "rows", "features", "softmax", "softmax, Fourier", "kernel ridge", "network",
    "best of any kind", "head, at most 400 MB: its gap", "head without rows kept: its gap",
    "any head: its gap", "random_ridge by default: behind the better of slda and ridge",
)  # fmt: skip


def main() -> None:
    """Write a row of the table for each stream as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/limits.md"))
    parser.add_argument("--streams", nargs="+", help="which, by the start of their names")
    parser.add_argument("--rows", type=int, help="at most so many training rows; None: all")
    parser.add_argument("--widths", type=int, nargs="+", default=[5000, 10_000])
    parser.add_argument("--fourier", type=int, default=8192, help="features of the softmax's map")
    parser.add_argument("--tuned", type=int, default=12_000, help="rows that tune the kernel")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no row after these")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    began = time.perf_counter()
    with asked.out.open("w", encoding="utf-8") as file:
        for text in ("| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"):
            print(text, file=file)
        for name, rows in streams(asked.sets):
            wanted = asked.streams is None or name.startswith(tuple(asked.streams))
            if wanted and time.perf_counter() - began < asked.seconds:
                text = line(name, rows, device, asked)
                print(text, file=file, flush=True)
                print(f"{time.perf_counter() - began:.0f} s: {text}", flush=True)


if __name__ == "__main__":
    main()
