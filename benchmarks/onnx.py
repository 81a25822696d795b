"""A head beside its ONNX file: the same classes, the time of one call of 10,000 rows, and sizes.

python -m benchmarks.onnx [--heads mean slda …] [--features cifar10 cifar100] [--every 4]

Heads learn one in four training rows of the bundled sets and answer all 10,000 test rows;
onnxruntime runs the file in float64 and in float32, in one thread as the head. "differ" counts rows
whose class is another one; "rounding" those of them whose two largest logits differ by less than
10⁻⁵ of the largest. Times are the best of some calls, in turn; only their ratio says something.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor

import lastlayer as ll
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.heads import Head


def session_of(path: Path) -> Callable[[Tensor], Tensor]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options)
    return lambda z: torch.from_numpy(session.run(None, {"z": z.numpy()})[0])


def best_of(runs: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    found = dict.fromkeys(runs, float("inf"))
    for _ in range(times):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def everything(head: Head, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return classes, probabilities and novelty as the file gives them."""
    logits, novelty = head.judge(z)
    label = logits.argmax(dim=1).masked_fill(novelty > head.limit(0.05), -1)
    return label, head.probabilities_of(logits), novelty


def row(features: str, name: str, every: int, folder: Path) -> str:
    data = ll.load_features(features)
    clf = ll.HeadClassifier(name, random_state=0)
    z, y = data.train.z[::every].float().numpy(), data.train.y[::every].numpy()
    head: Head = clf.fit(z, y).head_
    head.calibrate(data.test.z[::2].double(), data.test.y[::2])
    z = data.test.z.double()
    logits = head(z)
    first, second = logits.topk(2, dim=1).values.T
    close = (first - second) <= 1e-5 * logits.nan_to_num(neginf=0).abs().amax(dim=1)
    cells, runs, sizes = [], {"head": lambda: everything(head, z)}, []
    for dtype in (torch.float64, torch.float32):
        path = folder / f"{dtype}.onnx"
        head.export_onnx(path, unknown=0.05, dtype=dtype)
        head.export_onnx(folder / "plain.onnx", dtype=dtype)
        other = session_of(folder / "plain.onnx")(z.to(dtype)) != logits.argmax(dim=1)
        cells.append(f"{int(other.sum())}")
        if dtype == torch.float32:
            cells.append(f"{int((other & close).sum())}")
        session, given = session_of(path), z.to(dtype)
        runs[str(dtype)] = lambda session=session, given=given: session(given)
        sizes.append(f"{path.stat().st_size / 1000:,.0f} kB")
    took = best_of(runs, 3 if head.abilities.keeps_samples else 7)
    cells += [f"{1000 * took['head']:.1f} ms"]
    cells += [f"{took[str(d)] / took['head']:.2f}" for d in (torch.float64, torch.float32)]
    return f"| {features} | `{name}` | {' | '.join([*cells, *sizes])} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", nargs="+", default=[*HEADS, "cosine+single"])
    parser.add_argument("--features", nargs="+", default=["cifar10", "cifar100"])
    parser.add_argument("--every", type=int, default=4)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print("| features | head | float64: differ | float32: differ | of them rounding | head "
          "| float64 / head | float32 / head | float64 file | float32 file |")  # fmt: skip
    print("|---" * 10 + "|")
    with tempfile.TemporaryDirectory() as folder:
        for features in asked.features:
            for name in asked.heads:
                print(row(features, name, asked.every, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
