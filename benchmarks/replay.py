"""Networks trained end to end at once, in each way and precision, and one by one in plain PyTorch.

CUDA_DEVICE_MAX_CONNECTIONS=32 python -m benchmarks.replay                    # needs a CUDA device
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

from lastlayer.extraction.backbones.resnet20 import ResNet20
from lastlayer.layers import LAYERS, MASKS
from lastlayer.replay.training import ReplayRules, TrainingOptions, train_replay
from lastlayer.replay.training.at_once import trainer_for
from lastlayer.replay.training.image_pool import ImagePool, make_image_pool
from lastlayer.replay.training.learner import Learner, Network
from lastlayer.replay.training.training_options import PRECISIONS

BATCH = 8
KINDS = {  # clipped as the authors do, since the long runs are
    "side by side, float32": TrainingOptions(10.0, grouped=False),
    **{
        f"grouped, {precision}": TrainingOptions(10.0, precision=precision, grouped=True)
        for precision in PRECISIONS
    },
}
# CIFAR10, 12 networks of each balance, 50 epochs of 5 tasks: how many train at once in a group of
# all 48, since epochs differ in length, and how many images each of them sees meanwhile.
PHASES = {48: 2_550_000, 36: 450_000, 24: 2_000_000, 12: 2_500_000}

Rates = dict[tuple[str, int], float]  # way, networks: images per second


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
    """Return as many networks as asked for: layers × masks × seeds."""
    kinds = product(range(-(-n // 4)), ("linear", "weight_norm"), ("none", "group"))
    return [Network(layer, mask, 1.0, seed) for seed, layer, mask in kinds][:n]


def learners(n: int, pool: ImagePool, options: TrainingOptions) -> list[Learner]:
    return [Learner(one, pool, backbone, "adam", 1e-3, options) for one in networks(n)]


def plain_loop(pool: ImagePool, network: Network, order: Tensor) -> Callable[[], None]:
    """Train as one would write it by hand, with PyTorch's defaults; images are on the GPU, too."""
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


def at_once(pool: ImagePool, n: int, order: Tensor, kind: str) -> Callable[[], None]:
    """Take the steps of n networks as `train_replay` does."""
    options = KINDS[kind]
    crowd = learners(n, pool, options)
    trainer = trainer_for(crowd, BATCH, len(order), options)

    def run() -> None:
        with PRECISIONS[options.precision].convolutions():
            trainer.take_epoch(crowd, [order] * n)

    return run


def seconds(run: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def speed(pool: ImagePool, n: int, steps: int, rounds: int) -> Rates:
    """Interleave all sides, so that other work on the machine affects all of them alike."""
    order = torch.randint(len(pool.y), (steps * BATCH,))
    runs = {kind: at_once(pool, n, order, kind) for kind in KINDS}
    for run in runs.values():
        run()  # records
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, run in runs.items():
            times[kind].append(seconds(run))
    rates = {(kind, n): n * len(order) / statistics.median(times[kind]) for kind in KINDS}
    for kind in KINDS:
        print(f"{n:3} networks {kind:22} {rates[kind, n]:9,.0f} images/s", flush=True)
    return rates


def plain_speed(pool: ImagePool, steps: int) -> None:
    order = torch.randint(len(pool.y), (steps * BATCH,)).to(pool.x.device)
    loops = [plain_loop(pool, network, order) for network in networks(4)[::3]]
    for loop in loops:
        loop()
    rate = len(order) / statistics.mean(seconds(loop) for loop in loops)
    print(f"one after another in plain PyTorch {rate:9,.0f} images/s", flush=True)


def whole_study(rates: Rates) -> None:
    """Print how long the steps of 48 networks with 50 epochs take, all at once."""
    if not {12, 24, 48} <= {n for _, n in rates}:
        return
    for kind in KINDS:
        known = {n: rates[kind, n] for n in (12, 24, 48)}
        known[36] = (known[24] + known[48]) / 2
        minutes = sum(n * images / known[n] for n, images in PHASES.items()) / 60
        print(f"48 networks, 50 epochs, {kind:22} {minutes:6.1f} min of steps")


def between_epochs(pool: ImagePool) -> None:
    """Print how long the work between two epochs and a smaller last batch take."""
    for precision in ("float32", "tf32"):
        (learner,) = learners(1, pool, TrainingOptions(10.0, precision=precision))
        with PRECISIONS[precision].convolutions():
            learner.right()
            print(f"10,000 test images, {precision}: {1e3 * seconds(learner.right):.0f} ms")
    rows = torch.arange(4, device=pool.x.device)
    learner.step(rows)
    print(f"a last batch, taken alone: {1e3 * seconds(lambda: learner.step(rows)):.0f} ms")


def same_numbers(device: torch.device, n: int) -> None:
    """Compare 20 recorded steps among other networks with 20 plain ones alone, in float64."""
    pool = make_pool(1000, device, torch.float64)
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(1))[: 20 * BATCH]
    for grouped in (False, True):
        options = TrainingOptions(10.0, grouped=grouped)
        crowd = learners(n, pool, options)
        trainer_for(crowd, BATCH, len(order), options).take_epoch(crowd, [order] * n)
        gaps = []
        for among, alone in zip(crowd, learners(n, pool, options), strict=True):
            for rows in order.to(device).split(BATCH):
                alone.step(rows)
            pairs = zip(among.net.parameters(), alone.net.parameters(), strict=True)
            gaps.append(max(float((a - b).detach().abs().max()) for a, b in pairs))
        recorded = f"recorded {_name(options)} of {n}"
        print(f"20 steps in float64, {recorded}, plain alone: apart by {max(gaps):.1e}")


def whole_run(device: torch.device, options: TrainingOptions) -> None:
    """Print how far a small run that is killed and resumed ends from an undisturbed one.

    In float64, where the order in which a GPU adds up gradients shows least.
    """
    pool = make_pool(2000, device, torch.float64)
    tasks = [((pool.y.cpu() // 2) == t).nonzero()[:, 0] for t in range(3)]
    crowd = [*networks(2), Network(balance=0.5), Network(balance=0.1)]
    given = pool, tasks, crowd, backbone, ReplayRules(epochs=2, per_class=50), options
    ends = list(train_replay(*given))
    done: list[int] = []

    def stop(images: int) -> None:
        done.append(images)
        if len(done) == 9:  # two epochs of four networks, and one more
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(KeyboardInterrupt):
            list(train_replay(*given, folder=folder, on_epoch=stop))
        again = list(train_replay(*given, folder=folder))
    gap = max((a.right - b.right).abs().sum().item() for a, b in zip(ends, again, strict=True))
    print(f"{_name(options)}, killed and resumed: right answers apart by at most {gap} of 4,000")


def _name(options: TrainingOptions) -> str:
    return "grouped" if options.grouped else "side by side"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, nargs="*", default=[12, 24, 48])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--search", action="store_true", help="let cuDNN look for fast kernels")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = arguments.search
    device = torch.device("cuda")
    print(torch.cuda.get_device_name(), torch.__version__)
    pool = make_pool(50_000, device)
    plain_speed(pool, arguments.steps // 2)
    rates: Rates = {}
    for n in arguments.networks:
        rates |= speed(pool, n, arguments.steps, arguments.rounds)
    whole_study(rates)
    between_epochs(pool)
    same_numbers(device, 6)
    for grouped in (False, True):
        whole_run(device, TrainingOptions(10.0, "authors", grouped=grouped))


if __name__ == "__main__":
    main()
