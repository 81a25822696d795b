"""How far the probabilities of heads are to be believed, before calibration and after.

python -m benchmarks.probabilities [--heads mean slda …] [--features cifar10 cifar100] [--hold-out]

Heads learn all training rows of the bundled sets. Half of the test rows, chosen at random, are
calibrated with, and the other half is asked: the expected calibration error over 15 bins of equal
width of the largest probability, and the log loss in nats. "raw" is the softmax of the logits,
"before" what an uncalibrated head says (``Head.probabilities``), "after" what a calibrated one
does. Beside them the share turned away where 5 % was asked. With --hold-out,
last, ECE and that share where a tenth of the training rows calibrates, which the head has not
learned then.
"""

import argparse

import torch
from torch import Tensor

import lastlayer as ll
from lastlayer.catalogue.head_cards import HEADS
from lastlayer.heads import Head

BINS = 15


def calibration_error(probabilities: Tensor, y: Tensor) -> float:
    sure, answer = probabilities.max(dim=1)
    right = (answer == y).double()
    bin_ = (sure * BINS).long().clamp(max=BINS - 1)
    gap = torch.zeros(BINS, dtype=torch.float64).index_add_(0, bin_, right - sure)
    return float(gap.abs().sum()) / len(y)


def log_loss(probabilities: Tensor, y: Tensor) -> float:
    return float(-probabilities.gather(1, y[:, None]).log().mean())


def numbers(probabilities: Tensor, y: Tensor) -> str:
    return f"{calibration_error(probabilities, y):.3f} | {log_loss(probabilities, y):.2f}"


def turned_away(head: Head, z: Tensor) -> float:
    return 100 * float((head.predict(z, unknown=0.05) == -1).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", nargs="+", default=[*HEADS, "cosine+single"])
    parser.add_argument("--features", nargs="+", default=["cifar10", "cifar100"])
    parser.add_argument("--hold-out", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    columns = ["features", "head", "raw: ECE", "log loss", "before: ECE", "log loss", "after: ECE"]
    columns += ["log loss", "temperature", "turned away"]
    columns += ["by training rows: ECE", "turned away"] if asked.hold_out else []
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for features in asked.features:
        data = ll.load_features(features)
        z, y = data.train.z.float().numpy(), data.train.y.numpy()
        order = torch.randperm(len(data.test), generator=torch.Generator().manual_seed(0))
        own, other = order.chunk(2)
        asked_z, asked_y = data.test.z[other].double(), data.test.y[other]
        for name in asked.heads:
            head: Head = ll.HeadClassifier(name, random_state=0).fit(z, y).head_
            cells = [numbers(torch.softmax(head(asked_z), dim=1), asked_y)]
            cells.append(numbers(head.probabilities(asked_z), asked_y))
            head.calibrate(data.test.z[own].double(), data.test.y[own])
            cells.append(numbers(head.probabilities(asked_z), asked_y))
            cells.append(f"{head.temperature:.2g} | {turned_away(head, asked_z):.1f} %")
            if asked.hold_out:
                held = ll.HeadClassifier(name, calibration=0.1, random_state=0).fit(z, y).head_
                error = calibration_error(held.probabilities(asked_z), asked_y)
                cells.append(f"{error:.3f} | {turned_away(held, asked_z):.1f} %")
            print(f"| {features} | `{name}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
