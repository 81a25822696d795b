"""Learning behind a wide random map: beside the bare symmetric product, and RanPAC's own update.

python -m benchmarks.random_features [--device cuda] [--threads 2] [--imagenet]
python -m benchmarks.random_features --busy --features 384 --default 5000 10000   # default maps

Rates are in 10⁹ multiplications and additions a second of the symmetric product alone, n · width²;
what else a head does (mapping, centring, means) counts as time, not as work. Runs are interleaved
and the best of each is taken, so only ratios say something. --imagenet: 1.28 million rows of 768
features, 1,000 classes, width 10,000, made up on the device piece by piece. --default: learning
behind default maps of these widths, and no more. --busy: in processor time, where others use the
machine.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lastlayer.heads import make_head, make_map
from lastlayer.heads.maps.feature_map import ROWS
from lastlayer.heads.maps.mapped_head import MappedHead
from lastlayer.heads.statistics.moments import add_gram

LAMBDAS = [10.0**e for e in range(-8, 9)]  # the 17 that RanPAC tries


Clock = Callable[[], float]


def seconds(
    run: Callable[[], object], device: torch.device, clock: Clock = time.perf_counter
) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = clock()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def best_of(
    runs: dict[str, Callable[[], object]],
    device: torch.device,
    times: int = 3,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Time several things in turn, equally often, and return the best of each."""
    found = {name: float("inf") for name in runs}
    for _ in range(times):
        for name, run in runs.items():
            found[name] = min(found[name], seconds(run, device, clock))
    return found


def rows(
    n: int, h: int, n_classes: int, device: torch.device, seed: int = 0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    centres = torch.randn(
        n_classes, h, generator=torch.Generator(device).manual_seed(9), device=device
    )
    y = torch.randint(n_classes, (n,), generator=generator, device=device)
    return 0.15 * centres[y] + torch.randn(n, h, generator=generator, device=device), y


def mapped_head(
    h: int, width: int, n_classes: int, z: Tensor, *, default: bool = False
) -> MappedHead:
    asked: dict[str, Any] = {"width": width}
    if not default:
        asked = {"like": make_map("relu", h, width).to(z.device).fit(z[:ROWS])}
    head = make_head("random_ridge", h, n_classes, budget=16 << 30, **asked).to(z.device)
    assert isinstance(head, MappedHead)
    return head


def product(phi: Tensor) -> Callable[[], object]:
    """Repeat the bare symmetric product: BLAS's syrk on a CPU, PyTorch's on a GPU."""
    gram = phi.new_zeros(phi.shape[1], phi.shape[1])
    return lambda: add_gram(gram, phi) if phi.is_cpu else gram.addmm_(phi.mT, phi)


def learning(
    device: torch.device,
    n: int,
    h: int,
    width: int,
    n_classes: int,
    *,
    default: bool = False,
    clock: Clock = time.perf_counter,
) -> float:
    """Return the share of the bare product's speed that learning reaches."""
    z, y = rows(n, h, n_classes, device)
    head = mapped_head(h, width, n_classes, z, default=default)
    phi = torch.cat([head.map(part) for part in z.split(2000)])

    def learn() -> None:
        head.observe(z, y)
        head.inner.statistics.mean  # noqa: B018  (rows that wait are folded in when it is read)

    times = 2 if width > 5000 else 3
    took = best_of({"product": product(phi), "learn": learn}, device, times, clock)
    share = took["product"] / took["learn"]
    rate = {name: n * width**2 / spent / 1e9 for name, spent in took.items()}
    print(
        f"n {n:7d}, h {h:4d}, width {width:5d}, classes {n_classes:4d}: "
        f"learning {took['learn']:.2f} s ({rate['learn']:.0f}), "
        f"bare product {took['product']:.2f} s ({rate['product']:.0f}): "
        f"{100 * share:.0f} %",
        flush=True,
    )
    return share


class RanPac:
    """RanPAC's own update, as in its authors' code: float32 G += HᵀH, 17 solves."""

    def __init__(self, h: int, width: int, n_classes: int, device: torch.device) -> None:
        generator = torch.Generator(device).manual_seed(0)
        self.projection = torch.randn(h, width, generator=generator, device=device)
        self.gram = torch.zeros(width, width, device=device)
        self.cross = torch.zeros(width, n_classes, device=device)
        self.weight = torch.zeros(n_classes, width, device=device)

    def learn(self, z: Tensor, y: Tensor) -> None:
        """Learn one task: the penalty by squared error on a fifth of its rows."""
        hidden = torch.relu(z @ self.projection)
        targets = torch.nn.functional.one_hot(y, self.cross.shape[1]).float()
        self.cross += hidden.mT @ targets
        self.gram += hidden.mT @ hidden
        n = int(0.8 * len(z))
        gram, cross = hidden[:n].mT @ hidden[:n], hidden[:n].mT @ targets[:n]
        identity = torch.eye(len(gram), device=z.device)
        errors = []
        for penalty in LAMBDAS:
            weight = torch.linalg.solve(gram + penalty * identity, cross)
            errors.append(float((hidden[n:] @ weight - targets[n:]).square().mean()))
        chosen = LAMBDAS[errors.index(min(errors))]
        self.weight = torch.linalg.solve(self.gram + chosen * identity, self.cross).mT

    def predict(self, z: Tensor) -> Tensor:
        return (torch.relu(z @ self.projection) @ self.weight.mT).argmax(dim=1)


def beside_ranpac(
    device: torch.device, n: int, h: int, width: int, n_classes: int, tasks: int
) -> None:
    """Compare learning a stream of tasks, ready to answer after each of them."""
    z, y = rows(n, h, n_classes, device)
    test_z, test_y = rows(5000, h, n_classes, device, seed=1)
    ours, theirs = mapped_head(h, width, n_classes, z), RanPac(h, width, n_classes, device)

    def run_ours() -> None:
        for part, labels in zip(z.chunk(tasks), y.chunk(tasks), strict=True):
            ours.observe(part, labels)
            ours.predict(test_z[:1])

    def run_theirs() -> None:
        for part, labels in zip(z.chunk(tasks), y.chunk(tasks), strict=True):
            theirs.learn(part, labels)

    took = {"ours": seconds(run_ours, device), "theirs": seconds(run_theirs, device)}
    right = {
        name: 100 * (head.predict(test_z) == test_y).double().mean().item()
        for name, head in (("ours", ours), ("theirs", theirs))
    }
    print(
        f"{tasks} tasks, n {n}, width {width}, {n_classes} classes: "
        f"random_ridge {took['ours']:.1f} s, {right['ours']:.2f} %; "
        f"RanPAC's update {took['theirs']:.1f} s, {right['theirs']:.2f} %: "
        f"{took['theirs'] / took['ours']:.1f} times as long",
        flush=True,
    )


def imagenet(device: torch.device, n: int = 1_281_167, h: int = 768, width: int = 10_000) -> None:
    """Learn as many rows as ImageNet has, made up piece by piece."""
    n_classes, piece = 1000, 20_000
    z, _ = rows(piece, h, n_classes, device)
    head = mapped_head(h, width, n_classes, z)
    phi = torch.cat([head.map(part) for part in z.split(5000)])
    bare = best_of({"product": product(phi)}, device)["product"]
    del phi

    def learn() -> None:
        for number in range(n // piece):
            z, y = rows(piece, h, n_classes, device, seed=number)
            head.observe(z, y)
        z, y = rows(n % piece, h, n_classes, device, seed=n)
        head.observe(z, y)
        head.inner.statistics.mean  # noqa: B018

    spent = seconds(learn, device)
    refresh = seconds(lambda: head.predict(z[:1]), device)
    print(
        f"n {n}, h {h}, width {width}, {n_classes} classes: learning {spent:.1f} s, "
        f"{100 * (n / piece) * bare / spent:.0f} % of the bare product's speed "
        f"({piece * width**2 / bare / 1e9:.0f}), refresh {refresh:.1f} s"
    )
    if device.type == "cuda":
        print(f"at most {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB of the GPU's memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--width", type=int, default=5000)
    parser.add_argument("--features", type=int, default=384, help="with --default")
    parser.add_argument("--default", type=int, nargs="+", help="widths")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--imagenet", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    device = torch.device(asked.device)
    n = 20_000 if device.type == "cuda" else 4000
    print(f"PyTorch {torch.__version__}, {device}, {asked.threads} threads")
    clock = time.process_time if asked.busy else time.perf_counter
    for width in asked.default or ():
        learning(device, n, asked.features, width, 100, default=True, clock=clock)
    if asked.default:
        return
    learning(device, n, 768, asked.width, 100)
    print("growth in samples, width and classes")
    for times in (1, 2, 4):
        learning(device, times * n // 4, 768, asked.width // 4, 100)
    for width in (asked.width // 4, asked.width // 2):
        learning(device, n, 768, width, 100)
    for n_classes in (10, 1000):
        learning(device, n, 768, asked.width // 4, n_classes)
    beside_ranpac(device, 2 * n, 768, asked.width // 2, 100, tasks=5)
    if asked.imagenet:
        imagenet(device)


if __name__ == "__main__":
    main()
