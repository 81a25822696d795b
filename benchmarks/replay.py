"""Networks trained end to end at once, beside the same networks one after another in plain PyTorch.

CUDA_DEVICE_MAX_CONNECTIONS=32 python benchmarks/replay.py                    # needs a CUDA device
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional

from lastlayer.features.backbones.resnet20 import ResNet20
from lastlayer.layers import LAYERS, MASKS
from lastlayer.training.replay import ReplayRules, train_replay
from lastlayer.training.replay.image_pool import ImagePool, make_image_pool
from lastlayer.training.replay.learner import Learner, Network
from lastlayer.training.replay.steps import PlainSteps, steps_of, take_epoch

BATCH = 8
IMAGES = {0.01: 255_000, 0.1: 300_000, 0.5: 500_000, 1.0: 750_000}  # of one network, CIFAR10


def backbone() -> nn.Module:
    network = ResNet20(10)
    network.fc = nn.Identity()  # ours goes there
    return network


def make_pool(n: int, device: torch.device, dtype: torch.dtype = torch.float32) -> ImagePool:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (n, 3, 32, 32), dtype=torch.uint8, generator=draw)
    y = torch.arange(n) % 10
    return make_image_pool(x, y, x[:10_000], y[:10_000], std=(0.25,), dtype=dtype).to(device)


def networks(n: int) -> list[Network]:
    """Layers × masks × seeds, as many as asked for."""
    kinds = product(range(-(-n // 4)), ("linear", "weight_norm"), ("none", "group"))
    return [Network(layer, mask, 1.0, seed) for seed, layer, mask in kinds][:n]


def plain_loop(pool: ImagePool, network: Network, order: Tensor) -> Callable[[], None]:
    """What one would write, with PyTorch's defaults; the images are on the GPU, too."""
    net = nn.Sequential(backbone(), LAYERS[network.layer](64, 10)).to(pool.x.device)
    optimizer, keep = torch.optim.Adam(net.parameters(), lr=1e-3), MASKS[network.mask]

    def run() -> None:
        for rows in order.split(BATCH):
            y = pool.y[rows]
            logits = net(pool.batch(rows)) * keep(functional.one_hot(y, 10).mT).mT
            optimizer.zero_grad()
            functional.cross_entropy(logits, y).backward()
            optimizer.step()

    return run


def at_once(pool: ImagePool, n: int, order: Tensor) -> Callable[[], None]:
    """The same steps of n networks, as `train_replay` takes them."""
    learners = [Learner(network, pool, backbone, "adam", 1e-3) for network in networks(n)]
    steps = [steps_of(learner, BATCH, len(order)) for learner in learners]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        take_epoch(steps, [order[: 2 * BATCH]] * n)  # records
    return lambda: take_epoch(steps, [order] * n)


def seconds(run: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def speed(pool: ImagePool, n: int, steps: int, rounds: int) -> None:
    """Interleave both sides, so that what else the machine does falls on both."""
    order = torch.randint(len(pool.y), (steps * BATCH,))
    few = order[: steps // 3 * BATCH].to(pool.x.device)  # a plain step takes long enough
    loops = [plain_loop(pool, network, few) for network in networks(4)[::3]]
    together = at_once(pool, n, order)
    rates: dict[str, list[float]] = {"plain": [], "together": []}
    for one in [*loops, together]:
        one()
    for _ in range(rounds):
        plain = statistics.mean(seconds(loop) for loop in loops)
        rates["plain"].append(len(few) / plain)
        rates["together"].append(n * len(order) / seconds(together))
    own, other = statistics.median(rates["together"]), statistics.median(rates["plain"])
    ratio = statistics.median(a / b for a, b in zip(rates["together"], rates["plain"], strict=True))
    print(f"{n:3} networks at once: {own:7,.0f} images/s; plain, in turn: {other:6,.0f}")
    print(f"    {ratio:.1f} times as many")
    minutes = [12 * images / own / 60 for images in IMAGES.values()]
    print(f"    12 networks of each balance, 5 epochs of 5 tasks: {sum(minutes):.1f} min of steps")


def evaluation(pool: ImagePool) -> None:
    learner = Learner(Network(), pool, backbone, "adam", 1e-3)
    learner.right()
    print(f"right answers of 10,000 test images: {1e3 * seconds(learner.right):.0f} ms")


def same_numbers(device: torch.device, n: int) -> None:
    """20 recorded steps among others, and 20 plain ones alone, in float64."""
    pool = make_pool(1000, device, torch.float64)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(1))[: 20 * BATCH]
    crowd = [Learner(network, pool, backbone, "adam", 1e-3) for network in networks(n)]
    take_epoch([steps_of(learner, BATCH, len(order)) for learner in crowd], [order] * n)
    gaps = []
    for network, among in zip(networks(n), crowd, strict=True):
        alone = Learner(network, pool, backbone, "adam", 1e-3)
        take_epoch([PlainSteps(alone, BATCH)], [order])
        pairs = zip(among.net.parameters(), alone.net.parameters(), strict=True)
        gaps.append(max(float((a - b).detach().abs().max()) for a, b in pairs))
    print(f"20 steps in float64, recorded among {n} and plain alone: apart by {max(gaps):.1e}")


def whole_run(device: torch.device) -> None:
    """A small run with checkpoints, killed and resumed: how far apart on this device.

    In float64, where the order in which a GPU adds up gradients shows least.
    """
    pool = make_pool(2000, device, torch.float64)
    tasks = [((pool.y.cpu() // 2) == t).nonzero()[:, 0] for t in range(3)]
    rules = ReplayRules(epochs=2, per_class=50)
    ends = list(train_replay(pool, tasks, networks(4), backbone, rules))
    done: list[int] = []

    def stop(images: int) -> None:
        done.append(images)
        if len(done) == 9:  # two epochs of four networks, and one more
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(KeyboardInterrupt):
            list(
                train_replay(
                    pool, tasks, networks(4), backbone, rules, folder=folder, on_epoch=stop
                )
            )
        again = list(train_replay(pool, tasks, networks(4), backbone, rules, folder=folder))
    gap = max((a.right - b.right).abs().sum().item() for a, b in zip(ends, again, strict=True))
    print(f"killed and resumed, in float64: right answers apart by at most {gap} of 4,000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, nargs="*", default=[12, 24, 48])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    device = torch.device("cuda")
    print(torch.cuda.get_device_name(), torch.__version__)
    pool = make_pool(50_000, device)
    for n in arguments.networks:
        speed(pool, n, arguments.steps, arguments.rounds)
    evaluation(pool)
    same_numbers(device, 6)
    whole_run(device)


if __name__ == "__main__":
    main()
