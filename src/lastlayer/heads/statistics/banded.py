"""A symmetric matrix turned into a banded one, of which every shift is solved at once."""

import torch
from torch import Tensor

_WIDE = 4000  # features from which a wider band costs less
_ROOM = 1 << 26  # bytes that the steps of several shifts may take together


class Banded:
    """G = P B Pᵀ with B banded: 2 h³ operations, nearly all of them products.

    Householder's reflectors turn a panel of columns at a time, as when a matrix is made
    tridiagonal; but that spends half of its operations on products with one vector, which wait for
    memory. Of a band, all that is asked of (G + λI)⁻¹ takes h · band² operations.
    """

    def __init__(self, gram: Tensor, band: int | None = None) -> None:
        self._band = band or (32 if len(gram) < _WIDE else 64)
        a = gram.clone()
        self._below: list[Tensor] = []  # blocks (m, band) of B beside its diagonal
        self._turns: list[tuple[Tensor, Tensor]] = []  # V and T of each panel's turn I − V T Vᵀ
        for start in range(self._band, len(a), self._band):
            turned, scale = torch.geqrf(a[start:, start - self._band : start])
            self._below.append(turned[: self._band].triu())
            v = turned[:, : len(scale)].tril(-1)
            v.diagonal().fill_(1)
            # A scale of 0 is no turn at all.
            upper = (v.mT @ v).triu(1) + (1 / scale.clamp(min=1e-30)).diag()
            t = torch.linalg.solve_triangular(upper, torch.eye(len(scale)).to(upper), upper=True)
            rest = a[start:, start:]
            y = rest @ v @ t
            w = y - v @ (t.mT @ (v.mT @ y)) / 2
            rest.addmm_(torch.cat([v, w], dim=1), torch.cat([w, v], dim=1).mT, alpha=-1)
            self._turns.append((v, t))
        starts = range(0, len(a), self._band)
        self._diagonal = [a[k : k + self._band, k : k + self._band].clone() for k in starts]

    def turn(self, columns: Tensor) -> Tensor:
        """Return Pᵀ times columns (h, k)."""
        turned = columns.clone()
        for (v, t), start in zip(self._turns, self._starts(), strict=True):
            turned[start:] -= v @ (t.mT @ (v.mT @ turned[start:]))
        return turned

    def back(self, columns: Tensor) -> Tensor:
        """Return P times columns (h, k)."""
        turned = columns.clone()
        for (v, t), start in reversed([*zip(self._turns, self._starts(), strict=True)]):
            turned[start:] -= v @ (t @ (v.mT @ turned[start:]))
        return turned

    def at_once(self, columns: int) -> int:
        """Return for how many shifts ``solve`` may be asked at once."""
        h = sum(map(len, self._diagonal))
        return max(_ROOM // (8 * h * (2 * self._band + columns)), 1)

    def solve(self, cross: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (B + λI)⁻¹ cross (p, h, k), log |B + λI| (p,) and tr (B + λI)⁻¹ (p,).

        The blocks are eliminated one after the other; the way back gives the solution, and the
        blocks of the inverse on its diagonal.
        """
        volume = torch.zeros_like(shifts)
        roots, steps = list[Tensor](), list[Tensor]()  # of S: its factor, and S⁻¹ [belowᵀ, y]
        for i, rows in enumerate(cross.split(self._band)):
            s = self._diagonal[i] + torch.diag_embed(shifts[:, None].expand(-1, len(rows)))
            y = rows.expand(len(shifts), -1, -1)
            if steps:
                down = self._below[i - 1] @ steps[-1]
                s, y = s - down[..., : len(rows)], y - down[..., len(rows) :]
            root = torch.linalg.cholesky(s)
            right = [below.mT.expand(len(shifts), -1, -1) for below in self._below[i : i + 1]]
            steps.append(torch.cholesky_solve(torch.cat([*right, y], dim=2), root))
            roots.append(root)
            volume += 2 * root.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        found, inverse = [steps.pop()], torch.cholesky_inverse(roots.pop())
        trace = _trace(inverse)
        for root, step in zip(reversed(roots), reversed(steps), strict=True):
            up, y = step.split([step.shape[2] - cross.shape[1], cross.shape[1]], dim=2)
            found.append(y - up @ found[-1])
            inverse = torch.cholesky_inverse(root) + up @ inverse @ up.mT
            trace += _trace(inverse)
        return torch.cat(found[::-1], dim=1), volume, trace

    def _starts(self) -> range:
        return range(self._band, self._band * (len(self._turns) + 1), self._band)


def _trace(matrices: Tensor) -> Tensor:
    found: Tensor = matrices.diagonal(dim1=1, dim2=2).sum(dim=1)
    return found
