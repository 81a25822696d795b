"""How many samples the shared covariance of qda should count for: judged on training rows alone.

    python -m benchmarks.qda_nu [--sets DIR]

A fifth of the training rows of each set is held out (advise's first split); qda learns the rest and
answers for them, with ν from a quarter of a sample to 32 samples a feature. No test row is read.
DIR is what `python -m benchmarks.regret_sets` makes.
"""

import argparse
from pathlib import Path

import torch
from benchmarks.regret import streams

from lastlayer.evaluate.splits import splits_of
from lastlayer.evaluate.stream import lay_out
from lastlayer.heads import make_head

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 32.0)
# Sets whose features do not know their training rows: another backbone's, or none.
NAMES = ("cifar10", "cifar100-2", "cifar100_lifelong-2", "digits", "letters", "satellite", "mnist",
         "vowels", "dna", "mails", "snippets", "breast_cancer", "wine")  # fmt: skip


def main() -> None:
    """Print what each ν loses to the best of them on each set, and on average."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=Path)
    found = streams(parser.parse_args().sets)
    lost = []
    print("points behind the best ν, for ν/h =", *FACTORS)
    for name in (name for name in NAMES if name in found):
        draw, scenario = found[name]
        stream = lay_out(draw(0), scenario)
        split = splits_of(stream, n=1)[0]
        rows, h = torch.cat(split.tasks), stream.z.shape[1]
        right = []
        for factor in FACTORS:
            head = make_head("qda", h, stream.n_classes, nu=factor * h)
            head.observe(stream.z[rows].float(), stream.y[rows])
            answers = head.predict(stream.z[split.held].float())
            right.append(100 * float((answers == stream.y[split.held]).double().mean()))
        lost.append([max(right) - share for share in right])
        each = float(len(rows)) / stream.n_classes / h
        cells = " ".join(f"{points:6.2f}" for points in lost[-1])
        print(
            f"{name:22}{max(right):6.1f} % {each:8.2f} rows a class and feature {cells}", flush=True
        )
    means = torch.tensor(lost).mean(dim=0).tolist()
    print("mean", *(f"{mean:.2f}" for mean in means))


if __name__ == "__main__":
    main()
