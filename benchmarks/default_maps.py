"""The default maps beside those scaled to the first rows, on streams as they are and moved.

    python -m benchmarks.default_maps --sets DIR [--rows 1000] [--shift 2] [--streams digits mails]

DIR is what `python -m benchmarks.regret_sets` makes; without it the bundled sets and scikit-learn's
are taken, the latter as they are. Old: `relu` of random_ridge and `fourier` of random_slda at width
2,000, scaled to the first rows; new: products of unit rows, at the default width, whatever the
number of features. With --shift, one vector of so many times the mean length of a row is added to
all rows. Prints the length of the mean of unit rows, and test accuracy in %.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from benchmarks.penalty_rules import Rows, divided
from benchmarks.penalty_rules import streams as standardised
from sklearn import datasets
from torch import Tensor

from lastlayer.catalogue.map_widths import PRODUCTS, all_products
from lastlayer.core.tensors import unit_rows
from lastlayer.heads import make_head

OLD = {"random_ridge": "relu", "random_slda": "fourier"}
RAW = ("digits", "breast_cancer", "wine")


def streams(folder: Path | None) -> Iterator[tuple[str, Rows]]:
    for name, rows in standardised(folder):
        yield name, raw(name) if name in RAW else rows


def raw(name: str) -> Rows:
    found = getattr(datasets, f"load_{name}")()
    z, y = torch.from_numpy(found.data).float(), torch.from_numpy(found.target).long()
    return divided(z, y, None)


def accuracy(name: str, of: Rows, **options: object) -> float:
    z, y, test_z, test_y = of
    head = make_head(name, z.shape[1], **options)
    head.observe(z, y)
    return 100 * float((head.predict(test_z) == test_y).double().mean())


def moved(z: Tensor, times: float) -> Tensor:
    """Return what is added to all rows."""
    drawn = torch.randn(z.shape[1], generator=torch.Generator().manual_seed(3))
    return times * z.norm(dim=1).mean() * drawn / drawn.norm()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--shift", type=float, default=0.0)
    parser.add_argument("--streams", nargs="+", help="which, by the start of their names")
    asked = parser.parse_args()
    print("| stream | features | rows | mean of unit rows | " + " | ".join(
        f"{name}, {when}" for name in OLD for when in ("old", "new")) + " |")  # fmt: skip
    for name, (whole, labels, test_z, test_y) in streams(asked.sets):
        if asked.streams is not None and not name.startswith(tuple(asked.streams)):
            continue
        add, h = moved(whole, asked.shift), whole.shape[1]
        z, y = whole[: asked.rows] + add, labels[: asked.rows]
        rows = z, y, test_z[:3000] + add, test_y[:3000]
        products = {
            "map": "quadratic", "rows": "unit", "width": h + min(PRODUCTS, all_products(h) - h),
        }  # fmt: skip
        found = [
            accuracy(head, rows, **options)
            for head, old in OLD.items()
            for options in ({"map": old, "width": 2000}, products)
        ]
        cells = [name, str(h), str(len(y)), f"{float(unit_rows(z).mean(dim=0).norm()):.2f}"]
        print("| " + " | ".join([*cells, *(f"{one:.1f}" for one in found)]) + " |", flush=True)


if __name__ == "__main__":
    main()
