"""Learn mean and slda from a feature file of 4 GB: the anonymous memory that it takes.

python benchmarks/large_file.py [--gigabytes 4] [--folder DIR]
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

import lastlayer as ll

H, N_CLASSES, BATCH = 512, 100, 20_000


def make(path: Path, gigabytes: float) -> None:
    """Write the file; this takes the memory that reading it does not."""
    n = int(gigabytes * 1e9 / (2 * H))
    z = torch.empty(n, H, dtype=torch.float16)
    for part in z.split(BATCH):
        part.normal_()
    y = torch.arange(n) % N_CLASSES
    ll.Features.from_arrays(z, y, test=(z[:1000], y[:1000])).save(path)


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def learn(path: Path) -> None:
    """Learn from slices, while a thread looks at the memory."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    data = ll.load_features(path)
    opened = time.perf_counter() - start
    heads = [ll.make_head(name, in_features=H) for name in ("mean", "slda")]
    for rows in torch.arange(len(data.train)).split(BATCH):
        first, last = int(rows[0]), int(rows[-1]) + 1
        for head in heads:
            head.observe(data.train.z[first:last], data.train.y[first:last])
    right = [(head.predict(data.test.z) == data.test.y).float().mean().item() for head in heads]
    done.set()
    watcher.join()
    print(
        f"{path.stat().st_size / 1e9:.1f} GB, {len(data.train):,} × {H}: opened in {opened:.1f} s,"
    )
    print(f"learned in {time.perf_counter() - start - opened:.1f} s; accuracies {right}")
    print(f"peak anonymous memory {peak[0] / 2**20:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--learn", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.learn:
        learn(arguments.learn)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "large.safetensors"
        make(path, arguments.gigabytes)
        subprocess.run([sys.executable, __file__, "--learn", str(path)], check=True)


if __name__ == "__main__":
    main()
