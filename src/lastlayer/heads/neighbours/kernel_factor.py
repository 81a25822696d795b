"""A Gaussian kernel, and the Cholesky factor of its matrix by blocks of rows: it grows and shrinks.

The factor is kept as rows of blocks, so it takes half of a square matrix, and rows that come later
leave it as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

BLOCK = 512  # rows of a block


class Points(NamedTuple):
    """Rows made ready for a kernel."""

    scaled: Tensor  # (n, h) float64: measured from the kernel's centre, in its bandwidth
    half: Tensor  # (n,) half of their squared lengths


@dataclass(frozen=True)
class Kernel:
    """exp(−‖a − b‖²/(2 bandwidth²)).

    >>> kernel = Kernel(torch.zeros(1), bandwidth=1.0)
    >>> a, b = map(kernel.points, (torch.tensor([[0.0]]), torch.tensor([[0.0], [2.0]])))
    >>> kernel.between(a, b)
    tensor([[1.0000, 0.1353]], dtype=torch.float64)
    """

    centre: Tensor  # (h,) what features are measured from, so that few digits are lost
    bandwidth: float

    def points(self, z: Tensor) -> Points:
        """Make rows (n, h) ready."""
        centre = self.centre.double()
        scaled = (z.to(centre) - centre).div_(self.bandwidth)
        return Points(scaled, scaled.square().sum(dim=1).div_(2))

    @staticmethod
    def between(a: Points, b: Points) -> Tensor:
        """Compute the kernel (n, m) of n points and m others."""
        product = torch.addmm(-b.half, a.scaled, b.scaled.mT)
        return product.sub_(a.half[:, None]).clamp_(max=0).exp_()


@dataclass(frozen=True)
class Factor:
    """L, lower triangular, with L Lᵀ = K + penalty · I, of rows in some order.

    It never changes: ``extended`` and ``without`` return another one, with what can be kept.
    """

    kernel: Kernel
    penalty: float
    blocks: tuple[Tensor, ...] = ()  # (rows, columns up to the last of these rows) of L

    def __len__(self) -> int:
        return self.blocks[-1].shape[1] if self.blocks else 0

    def extended(self, z: Tensor) -> Self:
        """Return the factor of all rows ``z`` (n, h), of which it has the first ones already."""
        blocks, start = list(self.blocks), len(self)
        points = self.kernel.points(z)
        while start < len(z):
            # A block that is not full is filled up first, so that there are never many.
            short = len(blocks[-1]) if blocks and len(blocks[-1]) < BLOCK else 0
            more = self._rows_of(blocks, points, start, min(start + BLOCK - short, len(z)))
            if short:
                old = blocks.pop()
                more = torch.cat([torch.nn.functional.pad(old, (0, len(more))), more])
            blocks.append(more)
            start = more.shape[1]
        return replace(self, blocks=tuple(blocks))

    def _rows_of(self, blocks: list[Tensor], z: Points, start: int, end: int) -> Tensor:
        """Return rows of the factor, behind those of some blocks."""
        new, so_far = (Points(z.scaled[i:end], z.half[i:end]) for i in (start, 0))
        made = self.kernel.between(new, so_far)
        corner = made[:, start:]
        corner.diagonal().add_(self.penalty)
        for known, first, last in _placed(blocks):
            part = made[:, first:last]
            part.addmm_(made[:, :first], known[:, :first].mT, alpha=-1)
            part.copy_(_right_solve(known[:, first:], part))
        corner.addmm_(made[:, :start], made[:, :start].mT, alpha=-1)
        root, failed = torch.linalg.cholesky_ex(corner)
        if bool(failed):
            raise np.linalg.LinAlgError("singular")
        corner.copy_(root)
        return made

    def without(self, stays: Tensor) -> Self:
        """Return the factor of the rows that stay (n,).

        What a row that goes takes with it, its column of L, is turned into the columns that stay.
        """
        if bool(stays.all()):
            return self
        gone = ~stays
        kept = [b[stays[i:j]][:, stays[:j]] for b, i, j in _placed(self.blocks)]
        lost = [b[stays[i:j]][:, gone[:j]] for b, i, j in _placed(self.blocks)]
        lost = [torch.nn.functional.pad(w, (0, int(gone.sum()) - w.shape[1])) for w in lost]
        full = [(b, w) for b, w in zip(kept, lost, strict=True) if len(b)]
        for number, (own, first, last) in enumerate(_placed([b for b, _ in full])):
            width, w = last - first, full[number][1]
            if not bool(w.any()):
                continue
            turn, corner = torch.linalg.qr(torch.cat([own[:, first:], w], dim=1).mT, "complete")
            sign = torch.where(corner.diagonal() < 0, -1.0, 1.0).to(corner)
            turn[:, :width] *= sign
            own[:, first:] = (corner[:width] * sign[:, None]).mT
            for later, rest in full[number + 1 :]:
                both = torch.cat([later[:, first:last], rest], dim=1) @ turn
                later[:, first:last], rest[:] = both[:, :width], both[:, width:]
        return replace(self, blocks=tuple(b for b, _ in full))

    def forward_solve(self, b: Tensor) -> Tensor:
        """Return L⁻¹ b, for b (n, k)."""
        x = b.clone()
        for block, start, end in _placed(self.blocks):
            x[start:end].addmm_(block[:, :start], x[:start], alpha=-1)
            x[start:end] = torch.linalg.solve_triangular(
                block[:, start:], x[start:end], upper=False
            )
        return x

    def solve(self, b: Tensor) -> Tensor:
        """Return (K + penalty · I)⁻¹ b, for b (n, k)."""
        x = self.forward_solve(b)
        for block, start, end in reversed(list(_placed(self.blocks))):
            x[start:end] = torch.linalg.solve_triangular(
                block[:, start:].mT, x[start:end], upper=True
            )
            x[:start].addmm_(block[:, :start].mT, x[start:end], alpha=-1)
        return x


def _placed(blocks: tuple[Tensor, ...] | list[Tensor]) -> Iterator[tuple[Tensor, int, int]]:
    """Yield each block with the first of its rows and the one after its last."""
    return ((block, block.shape[1] - len(block), block.shape[1]) for block in blocks)


def _right_solve(lower: Tensor, b: Tensor) -> Tensor:
    """Return b L⁻ᵀ."""
    solved: Tensor = torch.linalg.solve_triangular(lower.mT, b, upper=True, left=False)
    return solved
