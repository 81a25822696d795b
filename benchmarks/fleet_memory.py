"""The memory that a fleet takes besides its data, beside the budget that it was planned for.

python benchmarks/fleet_memory.py            # on a GPU too, where there is one
"""

import subprocess
import sys
import threading
from pathlib import Path

import torch

from lastlayer.layers import LAYERS, MASKS
from lastlayer.training.fleet import Member, train_fleet
from lastlayer.training.plan import Job, plan
from lastlayer.training.pool import Pool, Rules, Stream

RULES = Rules(epochs=1)
CASES = [  # device, n, h, n_classes, orders, budget in MiB
    ("cpu", 50_000, 64, 10, 24, 64),
    ("cpu", 4000, 64, 10, 32, 64),
    ("cpu", 4000, 64, 10, 32, 256),
    ("cpu", 2000, 512, 50, 8, 64),
    ("cpu", 2000, 512, 50, 8, 256),
    ("cuda", 50_000, 64, 10, 256, 2048),
    ("cuda", 4000, 512, 50, 64, 1024),
    ("cuda", 4000, 512, 50, 64, 4096),
]


def anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def measure(device: str, n: int, h: int, n_classes: int, orders: int, budget: int) -> None:
    y = torch.arange(n) % n_classes
    pool = Pool(torch.randn(n, h), y, torch.randn(1000, h), y[:1000], n_classes)
    pool = pool.to(torch.device(device))
    streams = [Stream((torch.arange(n),), seed) for seed in range(orders)]
    kinds = [(layer, mask) for layer in LAYERS for mask in MASKS]
    jobs = [Job(s, Member(*kind, None, s.seed)) for s in streams for kind in kinds]
    fleets = plan(jobs, pool, RULES, budget << 20)
    before, peak, done = anonymous(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], anonymous() - before)

    watcher = threading.Thread(target=watch)
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    else:
        watcher.start()
    for fleet in fleets:
        members = [[jobs[number].member for number in numbers] for numbers in fleet.jobs]
        train_fleet(pool, fleet.streams, members, "paper", RULES)
    done.set()
    if device == "cuda":
        peak[0] = torch.cuda.max_memory_reserved() - before
    else:
        watcher.join()
    print(
        f"{device:4} {len(jobs):5} heads, {h} features, {n_classes} classes: {len(fleets)} fleets, "
        f"budget {budget} MiB, peak {peak[0] / 2**20:.0f} MiB",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1], *map(int, sys.argv[2:]))
        return
    for device, *sizes in CASES:
        if device == "cpu" or torch.cuda.is_available():
            command = [sys.executable, __file__, device, *map(str, sizes)]
            subprocess.run(command, check=True)  # a process each: memory once taken is kept


if __name__ == "__main__":
    main()
