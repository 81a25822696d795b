"""CPU seconds to load a random_ridge head and predict 10 rows, with what was solved and without.

python -m benchmarks.load_and_predict [--widths 2000 5000]
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

import lastlayer as ll

ROWS, FEATURES, CLASSES = 4000, 384, 50


def seconds(path: Path, z: torch.Tensor) -> float:
    """Return the CPU seconds of one answer by a loaded head."""
    begin = time.process_time()
    ll.load_head(path).predict(z)
    return time.process_time() - begin


def main() -> None:
    """Print a line for each width."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--widths", type=int, nargs="+", default=[2000, 5000])
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(ROWS) % CLASSES
    z = torch.randn(CLASSES, FEATURES, generator=generator)[y]
    z = z + torch.randn(ROWS, FEATURES, generator=generator)
    for width in parser.parse_args().widths:
        head = ll.make_head("random_ridge", in_features=FEATURES, width=width)
        head.observe(z, y)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "head")
            head.save(path)
            without = seconds(path, z[:10])
            head.predict(z[:10])
            head.save(path)
            print(f"width {width}: {seconds(path, z[:10]):.2f} s solved, {without:.2f} s not")


if __name__ == "__main__":
    main()
