"""The fleet beside what a user would write instead: ratios, in one run, on the same data and work.

python benchmarks/fleet.py              # two sizes, on two threads
python benchmarks/fleet.py --growth     # the fleet alone: how its time grows
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from lastlayer.catalogue.head_cards import HEADS
from lastlayer.evaluate.costs import default_memory
from lastlayer.evaluate.fleet import Job, Member, Stepper, epoch_of_batches, launch, plan
from lastlayer.evaluate.pool import BATCH_SIZE, Pool, Rules, Schedule
from lastlayer.heads.gradient.descent import CLIP, MOMENTUM
from lastlayer.layers import LAYERS, MASKS, masked_cross_entropy

COMBINATIONS = [(layer, mask) for layer in LAYERS for mask in MASKS]
RULES = Rules(epochs=1)


@dataclass(frozen=True)
class Case:
    n: int
    h: int
    n_classes: int
    orders: int = 8

    def __str__(self) -> str:
        return f"{self.n:,} × {self.h}, {self.n_classes} classes"

    def pool(self) -> Pool:
        generator = torch.Generator().manual_seed(0)
        y = torch.randint(self.n_classes, (self.n,), generator=generator)
        centre = torch.randn(self.n_classes, self.h, generator=generator)
        z = centre[y] + torch.randn(self.n, self.h, generator=generator)
        return Pool(z, y, z[:1000], y[:1000], self.n_classes)


def fleet_epoch(pool: Pool, case: Case) -> Callable[[], None]:
    """Train one epoch of every member without scoring, as the loops below do."""
    tasks = (torch.arange(case.n),)
    streams = [Schedule(tasks, seed) for seed in range(case.orders)]
    jobs = [
        Job(stream, Member(layer, mask, None, s))
        for s, stream in enumerate(streams)
        for layer, mask in COMBINATIONS
    ]
    fleets = []
    for part in plan(jobs, pool, RULES, default_memory(pool.z.device)):
        members = [[jobs[n].member for n in numbers] for numbers in part.jobs]
        fleets.append((part.schedules, Stepper(launch(pool, members, "paper"), pool)))

    def run() -> None:
        with torch.no_grad():
            for of_fleet, take_step in fleets:
                generators = [torch.Generator().manual_seed(s.seed) for s in of_fleet]
                for rows, share in epoch_of_batches(of_fleet, 0, RULES, generators, pool.z.device):
                    take_step(rows, share)

    return run


def loop_epoch(pool: Pool, layer: str, mask: str, tight: bool) -> Callable[[], None]:
    """Train one epoch with autograd: batches from a DataLoader, or sliced from a tensor."""
    head = LAYERS[layer](pool.z.shape[1], pool.n_classes)
    optimizer = torch.optim.SGD(head.parameters(), lr=HEADS[layer].lr, momentum=MOMENTUM)
    loader = DataLoader(TensorDataset(pool.z, pool.y), batch_size=BATCH_SIZE, shuffle=True)

    def batches() -> "list[tuple[Tensor, Tensor]] | DataLoader[tuple[Tensor, ...]]":
        if not tight:
            return loader
        order = torch.randperm(len(pool.y))
        return [(pool.z[rows], pool.y[rows]) for rows in order.split(BATCH_SIZE)]

    def run() -> None:
        for z, y in batches():
            optimizer.zero_grad()
            masked_cross_entropy(head(z), y, mask).backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), CLIP)
            optimizer.step()

    return run


def multiply_epoch(pool: Pool, case: Case) -> Callable[[], None]:
    """Compute only the two matrix products of every step, at the fleet's shapes."""
    rows = len(COMBINATIONS) * pool.n_classes
    weight = torch.randn(rows, case.h)
    z, g = pool.z[:BATCH_SIZE].clone(), torch.randn(rows, BATCH_SIZE)
    out_g, out_w = torch.empty_like(g), torch.empty_like(weight)
    zt = z.T

    def run() -> None:
        for _ in range(case.orders * -(-case.n // BATCH_SIZE)):
            torch.mm(weight, zt, out=out_g)
            torch.mm(g, z, out=out_w)

    return run


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(case: Case, rounds: int) -> None:
    """Interleave all sides, so that other work on the machine affects all of them alike."""
    pool = case.pool()
    n_members = case.orders * len(COMBINATIONS)
    fleet, multiply = fleet_epoch(pool, case), multiply_epoch(pool, case)
    tight = [loop_epoch(pool, *combination, tight=True) for combination in COMBINATIONS]
    loader = [loop_epoch(pool, *combination, tight=False) for combination in COMBINATIONS[::4]]
    times: dict[str, list[float]] = {"fleet": [], "multiply": [], "tight": [], "loader": []}
    for _ in range(rounds):
        times["fleet"].append(seconds(fleet) / n_members)
        times["multiply"].append(seconds(multiply) / n_members)
        times["tight"].append(statistics.mean(seconds(run) for run in tight))
        times["loader"].append(statistics.mean(seconds(run) for run in loader))
    per_run = {name: statistics.median(values) for name, values in times.items()}

    def ratio(name: str) -> float:
        return statistics.median(
            other / own for other, own in zip(times[name], times["fleet"], strict=True)
        )

    print(f"\n{case}, {n_members} members, batch {BATCH_SIZE}; per run and epoch:")
    print(f"  fleet                 {1e3 * per_run['fleet']:8.2f} ms")
    print(f"  tight loop            {1e3 * per_run['tight']:8.2f} ms   {ratio('tight'):6.1f} ×")
    print(f"  DataLoader loop       {1e3 * per_run['loader']:8.2f} ms   {ratio('loader'):6.1f} ×")
    print(f"  matrix products alone {1e3 * per_run['multiply']:8.2f} ms   {ratio('multiply'):6.0%}")


def grow(rounds: int) -> None:
    """Vary one thing at a time from 120 members, 20,000 × 64, 10 classes."""
    base = {"n": 20_000, "h": 64, "n_classes": 10, "orders": 8}
    steps = {
        "orders": (1, 2, 4, 8, 16, 32),
        "h": (64, 128, 256, 512, 1024),
        "n_classes": (10, 20, 50, 100),
        "n": (5_000, 10_000, 20_000, 40_000),
    }
    for name, values in steps.items():
        print(f"\n{name:10} members   ms per run and epoch   share in matrix products")
        for value in values:
            case = Case(**{**base, name: value})
            pool, n_members = case.pool(), case.orders * len(COMBINATIONS)
            fleet, multiply = fleet_epoch(pool, case), multiply_epoch(pool, case)
            fleet()
            own = min(seconds(fleet) for _ in range(rounds)) / n_members
            products = min(seconds(multiply) for _ in range(rounds)) / n_members
            print(f"{value:<10} {n_members:7}   {1e3 * own:20.2f}   {products / own:24.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--growth", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.growth:
        grow(arguments.rounds)
        return
    for case in (Case(50_000, 64, 10), Case(15_000, 512, 50)):
        measure(case, arguments.rounds)


if __name__ == "__main__":
    main()
