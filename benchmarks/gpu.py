"""The fleet on one GPU: time of an epoch, all the paper's gradient runs, agreement with the CPU.

python benchmarks/gpu.py
"""

import time
from collections.abc import Callable, Sequence

import torch

import lastlayer as ll
from lastlayer.evaluate.costs import default_memory
from lastlayer.evaluate.fleet import (
    Job,
    Member,
    Stepper,
    epoch_of_batches,
    launch,
    plan,
    train_fleet,
)
from lastlayer.evaluate.pool import Pool, Rules, Schedule, Score
from lastlayer.heads.head import Preset
from lastlayer.layers import LAYERS, MASKS
from lastlayer.scenarios import iid, make_scenario, subset

GPU, CPU = torch.device("cuda"), torch.device("cpu")
COMBINATIONS = [(layer, mask) for layer in LAYERS for mask in MASKS]


def seconds(run: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def run_jobs(pool: Pool, jobs: Sequence[Job], preset: Preset, memory: int) -> list[Score]:
    scores: dict[int, Score] = {}
    for part in plan(jobs, pool, Rules(), memory):
        members = [[jobs[n].member for n in numbers] for numbers in part.jobs]
        result = train_fleet(pool, part.schedules, members, preset, Rules())
        for numbers, of_stream in zip(part.jobs, result, strict=True):
            scores.update(zip(numbers, of_stream, strict=True))
    return [scores[n] for n in range(len(jobs))]


def one_epoch(n: int, h: int, n_classes: int, n_members: int, streams: int = 8) -> None:
    """Time one epoch of many members, scoring excluded, after one to warm up."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(n_classes, (n,), generator=generator)
    z = torch.randn(n_classes, h, generator=generator)[y] + torch.randn(n, h, generator=generator)
    pool = Pool(z, y, z[:1000], y[:1000], n_classes).to(GPU)
    rules, rows = Rules(epochs=1), (torch.arange(n),)
    of_stream = [Schedule(rows, seed) for seed in range(streams)]
    per_combination = n_members // streams // len(COMBINATIONS)
    members = [
        [Member(*c, None, seed) for c in COMBINATIONS for seed in range(per_combination)]
        for _ in of_stream
    ]
    fleet = launch(pool, members, "paper")
    take_step = Stepper(fleet, pool)

    def epoch() -> None:
        generators = [torch.Generator().manual_seed(s.seed) for s in of_stream]
        for batch in epoch_of_batches(of_stream, 0, rules, generators, GPU):
            take_step(*batch)

    with torch.no_grad():
        epoch()
        torch.cuda.reset_peak_memory_stats()
        best = min(seconds(epoch) for _ in range(5))
    peak = torch.cuda.max_memory_reserved() / 2**30
    print(
        f"{n_members} members, {n:,} × {h}, {n_classes} classes: {best:.3f} s, peak {peak:.1f} GiB"
    )


def pool_of(data: "ll.Features", label: str, device: torch.device) -> Pool:
    train, test = data.train, data.test
    y, test_y = train.labels[label], test.labels[label]
    return Pool(train.z, y, test.z, test_y, int(y.max()) + 1).to(device)


def paper_runs(device: torch.device) -> dict[str, tuple[Pool, list[Job]]]:
    """Return all gradient runs of the paper on the bundled sets."""
    small, large = ll.load_features("cifar10"), ll.load_features("cifar100")
    pools = {
        "cifar10": pool_of(
            small, "fine" if "fine" in small.train.labels else small.train.label, device
        ),
        "coarse": pool_of(large, "coarse", device),
        "fine": pool_of(large, "fine", device),
    }
    runs: dict[str, tuple[Pool, list[Job]]] = {}
    for name, data, pool in (
        ("cifar10", small, pools["cifar10"]),
        ("cifar100_lifelong", large, pools["coarse"]),
    ):
        streams = [Schedule(make_scenario(name, data, order=s).tasks, s) for s in range(8)]
        runs[f"continual {name}"] = (
            pool,
            [
                Job(stream, Member(*c, None, stream.seed))
                for stream in streams
                for c in COMBINATIONS
            ],
        )
        sizes: list[Job] = []
        for size in (100, 200, 500, 1000, None):
            for seed in range(8):
                tasks = (iid(data) if size is None else subset(data, size, seed=seed)).tasks
                stream = Schedule(tasks, seed, 1 if size is None else int(50_000 / size))
                sizes += [Job(stream, Member(*c, None, seed)) for c in COMBINATIONS]
        runs[f"subset {name}"] = pool, sizes
    for name, data, pool in (
        ("cifar10", small, pools["cifar10"]),
        ("cifar100", large, pools["fine"]),
    ):
        streams = [Schedule(iid(data).tasks, s) for s in range(8)]
        runs[f"preliminary {name}"] = (
            pool,
            [
                Job(stream, Member(layer, "none", lr, stream.seed))
                for stream in streams
                for layer in LAYERS
                for lr in (0.1, 0.01, 0.001)
            ],
        )
    return runs


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    one_epoch(50_000, 64, 10, 3840)
    one_epoch(15_000, 512, 50, 960)
    runs, memory = paper_runs(GPU), default_memory(GPU)
    results: dict[str, list[Score]] = {}

    def everything() -> None:
        for name, (pool, jobs) in runs.items():
            start = time.perf_counter()
            results[name] = run_jobs(pool, jobs, "paper", memory)
            torch.cuda.synchronize()
            print(f"  {name}: {len(jobs)} runs, {time.perf_counter() - start:.2f} s")

    print(f"all gradient runs of the paper: {seconds(everything):.2f} s")
    pool, jobs = paper_runs(CPU)["continual cifar10"]
    same = run_jobs(pool, jobs, "paper", default_memory(CPU))
    for name in ("continual cifar10",):
        gaps = [
            (a.by_class.sum(1) - b.by_class.sum(1)).abs().max().item()
            for a, b in zip(results[name], same, strict=True)
        ]
        print(
            f"{name}: largest difference to the CPU {100 * max(gaps) / len(pool.test_y):.2f} points"
        )


if __name__ == "__main__":
    main()
