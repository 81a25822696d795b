"""Bandwidth and penalty of kernel ridge regression, by exact leave-one-out error."""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lastlayer.core.tensors import row_bytes
from lastlayer.heads.neighbours.kernel_factor import Kernel

ROWS = 2000  # different rows that are looked at, at most: 3,000 choose no better
# The grids do not depend on the data, so that more rows mostly leave the choice as it is.
STEP = math.sqrt(2.0)  # from one bandwidth to the next
PENALTIES = tuple(10 ** (k / 2) for k in range(-8, 5))
_KEY = b"lastlayer kernel_ridge"


@dataclass(frozen=True)
class Different:
    """Different rows, each with what all rows like it have: the same from any order of them."""

    z: Tensor  # (m, h) float64
    times: Tensor  # (m,) how many rows are like it
    targets: Tensor  # (m, n_classes) how these are shared out among the classes


def sample(z: Tensor, y: Tensor, n_classes: int, most: int = ROWS) -> Different:
    """Return the different rows (n, h) with the smallest keyed hashes: a function of their set."""
    rows: dict[bytes, list[int]] = {}
    for number, row in enumerate(row_bytes(z)):
        found = hashlib.blake2b(row, digest_size=16, key=_KEY).digest()
        rows.setdefault(found, []).append(number)
    chosen = [rows[found] for found in sorted(rows)[:most]]
    place = torch.tensor([k for k, alike in enumerate(chosen) for _ in alike], device=z.device)
    own = torch.tensor([row for alike in chosen for row in alike], device=z.device)
    counts = torch.zeros(len(chosen), n_classes, dtype=torch.float64, device=z.device)
    counts.index_put_((place, y[own]), counts.new_ones(()), accumulate=True)
    times = counts.sum(dim=1)
    first = torch.tensor([alike[0] for alike in chosen], device=z.device)
    return Different(z[first].double(), times, counts / times[:, None])


def choose(
    rows: Different, bandwidth: float | None = None, penalty: float | None = None
) -> tuple[float, float]:
    """Return the bandwidth and the penalty with the least squared error of rows left out.

    Rows that are alike are left out together. A bandwidth or penalty that is given stays. From the
    bandwidth next to the rows' root mean squared distance from their mean it goes on to smaller or
    larger ones for as long as they are better.
    """
    penalties = PENALTIES if penalty is None else (penalty,)
    if bandwidth is not None:
        return bandwidth, _best(rows, bandwidth, penalties)[1]
    middle = round(math.log(spread(rows), STEP))
    tried: dict[int, tuple[float, float]] = {}

    def error(k: int) -> float:
        if k not in tried:
            tried[k] = _best(rows, STEP**k, penalties)
        return tried[k][0]

    while (better := min((middle, middle - 1, middle + 1), key=error)) != middle:
        middle = better
    return STEP**middle, tried[middle][1]


def spread(rows: Different) -> float:
    """Return the root mean squared distance of rows from their mean; 1 where they are all alike."""
    share = rows.times / rows.times.sum()
    apart = (rows.z - share @ rows.z).square().sum(dim=1)
    return math.sqrt(float(share @ apart)) or 1.0


def _best(rows: Different, bandwidth: float, penalties: tuple[float, ...]) -> tuple[float, float]:
    """Return the least error with a bandwidth, and the penalty that has it."""
    errors = left_out(rows, bandwidth, penalties)
    return min(zip(errors, penalties, strict=True))


def left_out(rows: Different, bandwidth: float, penalties: tuple[float, ...]) -> list[float]:
    """Compute for each penalty the squared error of rows left out, over all rows.

    With w rows alike, the matrix of different ones is A = K + λ/w on its diagonal. Its scaled form
    √w A √w = √w K √w + λ has the same eigenvectors for every penalty. With the intercept, rows of
    targets Y miss by (C Y)_i / C_ii when they are left out, C = A⁻¹ − A⁻¹11ᵀA⁻¹/(1ᵀA⁻¹1).
    """
    root = rows.times.sqrt()
    kernel = Kernel(rows.z.mean(dim=0), bandwidth)
    matrix = kernel.between(*2 * [kernel.points(rows.z)])
    values, vectors = torch.linalg.eigh(matrix.mul_(root).mul_(root[:, None]))
    values = values.clamp(min=0)
    turned = root[:, None] * vectors
    targets = torch.cat([rows.targets, torch.ones_like(root)[:, None]], dim=1)
    projected, squared = turned.mT @ targets, turned.square()
    errors = []
    for penalty in penalties:
        scaled = 1 / (values + penalty)
        solved = turned @ (projected * scaled[:, None])
        ones = solved[:, -1]
        total = ones.sum()
        own = squared @ scaled - ones.square() / total
        solved = solved[:, :-1] - torch.outer(ones / total, solved[:, :-1].sum(dim=0))
        errors.append(float(rows.times @ (solved / own[:, None]).square().sum(dim=1)))
    return errors
