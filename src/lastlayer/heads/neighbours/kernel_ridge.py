"""Kernel ridge regression on one-hot targets: it keeps rows, and one Cholesky factor solves it.

Bandwidth and penalty are chosen by exact leave-one-out error.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import Abilities, size_in_words
from lastlayer.core.checks import choice, real, short, whole
from lastlayer.core.tensors import row_bytes, row_hashes, unit_rows
from lastlayer.errors import DataError, OptionError
from lastlayer.heads.answering import can_win
from lastlayer.heads.graph import Value, masked, squared_distances, unit_graph
from lastlayer.heads.leave_one_out import check_leverage
from lastlayer.heads.neighbours.kernel_factor import BLOCK, Factor, Kernel
from lastlayer.heads.neighbours.stored_rows import StoringHead
from lastlayer.heads.statistics.statistics_head import BUDGET

_TILE = 1 << 22  # numbers of the kernel that are computed at once

Setting = float | Literal["auto"]
ROWS = 2000  # different rows that are looked at, at most: 3,000 choose no better
# The grids do not depend on the data, so that more rows mostly leave the choice as it is.
STEP = math.sqrt(2.0)  # from one bandwidth to the next
PENALTIES = tuple(10 ** (k / 2) for k in range(-8, 5))
_KEY = b"lastlayer kernel_ridge"


class KernelRidgeHead(StoringHead):
    """Ridge regression on one-hot targets with a Gaussian kernel and an intercept.

    With K_ij = exp(−‖z_i − z_j‖²/(2σ²)) of the rows it keeps, logit_c = Σ_i α_ic k(z, z_i) + b_c,
    where (K + λI) α_c + b_c = y_c and Σ_i α_ic = 0. σ and λ have the least exact leave-one-out
    error on at most 2,000 rows, those with the smallest keyed hashes: so they are a function of the
    set of rows, and neither order nor batches nor merging matter. Novelty is the predictive
    variance.

    An answer after a change takes n³/3 multiplications for n rows, or n² for each new or forgotten
    row where σ and λ stay as they were, as they do when both are given. It is not the paper's, and
    has no presets.

    Args:
        bandwidth: σ, in the unit of the features, or "auto".
        penalty: λ, above 0 (k(z, z) is 1), or "auto".
        rows: "unit" scales each row to length 1 first; "as_is" does not.
        budget: bytes that its factor may take, 4 for each pair of rows; more rows are refused.

    >>> import torch
    >>> z, y = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), [0, 0, 1, 1]
    >>> head = KernelRidgeHead(in_features=2, bandwidth=0.5, penalty=0.1)
    >>> head.observe(z, torch.tensor(y))  # what no linear layer can tell apart
    >>> head.predict(z).tolist()
    [0, 0, 1, 1]
    """

    name = "kernel_ridge"
    bandwidth: float  # σ as last used
    penalty: float  # λ as last used
    dual: Tensor  # (n, n_classes) α
    bias: Tensor  # (n_classes,)
    ones: Tensor  # (n,) (K + λI)⁻¹ 1

    def __init__(
        self,
        in_features: int,
        n_classes: int = 0,
        *,
        bandwidth: Setting = "auto",
        penalty: Setting = "auto",
        rows: str = "as_is",
        budget: int = BUDGET,
    ) -> None:
        options: dict[str, Any] = {
            "bandwidth": _setting(bandwidth, "bandwidth"),
            "penalty": _setting(penalty, "penalty"),
            "rows": choice(rows, ("as_is", "unit"), "rows"),
            "budget": whole(budget, "a budget in bytes", least=1),
        }
        super().__init__(in_features, n_classes, None, **options)
        for name in ("dual", "bias", "ones"):
            empty = torch.zeros(0, dtype=torch.float64)
            self.register_buffer(name, empty, persistent=False)
        self._factor: Factor | None = None
        self._number = self.memory.number  # of the rows of the factor

    @property
    def abilities(self) -> Abilities:
        """It keeps every row: whatever a set of rows allows."""
        return Abilities(
            keeps_samples=True, order_free=True, merges=True, forgets=True, forgets_class=True,
            leaves_out=True, weighs=True,
        )  # fmt: skip

    def _learn(self, z: Tensor, y: Tensor, *weight: Tensor) -> None:
        _check_budget(len(self.memory) + len(z), self.options["budget"])
        super()._learn(z, y)

    def _rearrange(self, classes: Tensor, columns: Tensor | None) -> None:
        super()._rearrange(classes, columns)
        self._factor = None

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        with self.lock:
            super()._apply(*args, **kwargs)
            self._factor, self._stale = None, True  # on another device, or of other numbers
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without the factor: rows make it again."""
        return super().__getstate__() | {"_factor": None, "_stale": True}

    def _rows(self) -> Tensor:
        return self._measured(self.memory.z)

    def _measured(self, z: Tensor) -> Tensor:
        return unit_rows(z) if self.options["rows"] == "unit" else z

    def _refresh(self) -> None:
        z, y = self._rows(), self.memory.y
        self.bandwidth, self.penalty = self._chosen(z, y)
        try:
            self._factor = self._solved_before().extended(z)
        except np.linalg.LinAlgError:
            raise DataError(
                f"the kernel's matrix must be invertible, got a singular one of {len(y)} rows with "
                f"bandwidth {self.bandwidth:g}: make the head with a larger penalty than "
                f"{self.penalty:g}, or with 'auto'"
            ) from None
        self._number = self.memory.number
        targets = torch.zeros(len(y), self.n_classes + 1, dtype=torch.float64, device=y.device)
        targets[torch.arange(len(y), device=y.device), y] = 1
        targets[:, -1] = 1
        solved = self._factor.solve(targets)
        self.ones = solved[:, -1].contiguous()
        self.bias = solved[:, :-1].sum(dim=0) / self.ones.sum()
        self.dual = solved[:, :-1] - torch.outer(self.ones, self.bias)

    def _chosen(self, z: Tensor, y: Tensor) -> tuple[float, float]:
        """Return the bandwidth and the penalty."""
        given = [
            None if value == "auto" else float(value)
            for value in (self.options["bandwidth"], self.options["penalty"])
        ]
        if None not in given:
            return given[0], given[1]  # type: ignore[return-value]
        return choose_kernel(different_rows(z, y, self.n_classes), *given)

    def _solved_before(self) -> Factor:
        """Return the factor of those rows of the present ones that were solved already."""
        old = self._factor
        if old is not None and (old.kernel.bandwidth, old.penalty) == (
            self.bandwidth,
            self.penalty,
        ):
            stays = torch.isin(self._number, self.memory.number)
            if 2 * int(stays.sum()) >= len(stays):
                return old.without(stays)
        return Factor(
            Kernel(self._rows()[:BLOCK].double().mean(dim=0), self.bandwidth), self.penalty
        )

    def _to_rows(self, z: Tensor) -> Tensor:
        """Compute the kernel (n, rows) between some features and the rows that it keeps."""
        kernel = self._solved().kernel
        if "points" not in self._derived:
            self._derived["points"] = kernel.points(self._rows())
        return kernel.between(kernel.points(self._measured(z)), self._derived["points"])

    def _solved(self) -> Factor:
        assert self._factor is not None, "it answers only when it is ready"
        return self._factor

    def _cut(self, z: Tensor) -> Iterator[Tensor]:
        return iter(z.split(max(_TILE // max(len(self.memory), 1), 1)))

    def _logits(self, z: Tensor) -> Tensor:
        parts = [torch.addmm(self.bias, self._to_rows(part), self.dual) for part in self._cut(z)]
        return torch.cat(parts)

    def _novelty(self, z: Tensor, logits: Tensor) -> Tensor:
        return torch.cat([self._variance(self._to_rows(part)) for part in self._cut(z)])

    def _variance(self, kernel: Tensor) -> Tensor:
        """Compute 1 − kᵀ(K + λI)⁻¹k, and what the intercept adds, of kernels (m, n)."""
        known = self._solved().forward_solve(kernel.mT).square_().sum(dim=0)
        free = (1 - kernel @ self.ones).square_() / self.ones.sum()
        return (1 - known + free).clamp_(min=0)

    def _leave_one_out(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        parts = zip(*map(self._cut, (z, y, copies)), strict=True)
        return torch.cat([self._part_without(*part) for part in parts])

    def _part_without(self, z: Tensor, y: Tensor, copies: Tensor) -> Tensor:
        """Return y − α/t, t the sum of C = (K + λI)⁻¹, less the intercept's, over a row's copies.

        All copies have one α, and the block of C that is theirs has equal sums of its rows.
        """
        places = self._places(z, y)
        member = torch.zeros(len(self.memory), len(y), dtype=torch.float64, device=y.device)
        for column, rows in enumerate(places):
            member[rows, column] = 1
        own = self._solved().forward_solve(member).square_().sum(dim=0) / copies
        first = torch.tensor([rows[0] for rows in places], device=y.device)
        left = own - copies * self.ones[first].square() / self.ones.sum()
        check_leverage(left)
        logits = -self.dual[first] / left[:, None]
        logits[torch.arange(len(y), device=y.device), y] += 1
        return logits

    def _places(self, z: Tensor, y: Tensor) -> list[list[int]]:
        """Return where in memory the rows are that are equal to each of some rows."""
        where: dict[tuple[int, int], list[int]] = {}
        keys = zip(row_hashes(self.memory.z).tolist(), self.memory.y.tolist(), strict=True)
        for place, key in enumerate(keys):
            where.setdefault(key, []).append(place)
        asked = list(zip(row_hashes(z).tolist(), y.tolist(), strict=True))
        if unknown := [row for row, key in enumerate(asked) if key not in where]:
            raise DataError(f"row {unknown[0]} was not learned with its label")
        return [where[key] for key in asked]

    def _own_temperature(self) -> float:
        """As steep as that of ridge, whose logits are estimates of probabilities as well."""
        return 1 / int(self.seen.sum())

    def _answer_graph(self, z: Value) -> tuple[Value, Value]:
        """Write down the kernel, its sum, and the variance by L⁻¹, which is as large as K."""
        points = self._rows().double()
        z = unit_graph(z) if self.options["rows"] == "unit" else z
        squared, unit = squared_distances(
            z, points, torch.ones_like(self.memory.y, dtype=torch.bool)
        )
        kernel = (squared * (-0.5 * (unit / self.bandwidth) ** 2)).unary("Exp")
        identity = torch.eye(len(points), dtype=torch.float64, device=points.device)
        known = (kernel @ self._solved().forward_solve(identity).mT).square().reduce("Sum")
        free = (kernel @ -self.ones[:, None] + 1.0).square().reduce("Sum")
        variance = (free * float(1 / self.ones.sum()) - known + 1.0).at_least(0.0)
        known_classes = can_win(self)
        return masked(kernel @ self.dual + self.bias, known_classes), variance


def _setting(value: object, name: str) -> Setting:
    """Return "auto", or a number above 0."""
    if value == "auto":
        return "auto"
    if isinstance(value, str) or not (number := real(value, name)) > 0:
        raise OptionError(f"{name} must be 'auto' or a number above 0, got {short(value)}")
    return number


def _check_budget(n: int, budget: int) -> None:
    """Refuse more rows than can be solved within a number of bytes."""
    needed = 4 * n * (n + BLOCK)
    if needed > budget:
        most = int(math.sqrt(budget / 4 + BLOCK**2 / 4) - BLOCK / 2)
        raise OptionError(
            f"kernel_ridge may take {size_in_words(budget)} to solve, enough for {most} rows, but "
            f"{n} rows need {size_in_words(needed)}: use random_ridge with a width of some "
            f"thousands, which keeps no rows, or make the head with budget={needed} if you have "
            "that much memory"
        )


@dataclass(frozen=True)
class Different:
    """Different rows, each with what all rows like it have: the same from any order of them."""

    z: Tensor  # (m, h) float64
    times: Tensor  # (m,) how many rows are like it
    targets: Tensor  # (m, n_classes) how these are shared out among the classes


def different_rows(z: Tensor, y: Tensor, n_classes: int, most: int = ROWS) -> Different:
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


def choose_kernel(
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
    errors = errors_without(rows, bandwidth, penalties)
    return min(zip(errors, penalties, strict=True))


def errors_without(rows: Different, bandwidth: float, penalties: tuple[float, ...]) -> list[float]:
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
