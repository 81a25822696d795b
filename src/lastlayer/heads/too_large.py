"""Rows so large that the sums of a head would lose what they have of all rows before.

Sums in float64 have 16 digits. A row whose square is 4.5 · 10⁹ times the squares of all the others
together leaves those fewer than the six that ``forget`` asks for (``PRECISION``), for good: to
forget the row does not bring them back. No features of one model differ that much.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lastlayer.errors import DataError
from lastlayer.heads.statistics.possible import PRECISION

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

ENOUGH = 20  # rows beside which one is too large
_TIMES = PRECISION / torch.finfo(torch.float64).eps


def refuse_too_large(head: "Head", z: Tensor, squares: float, first: int = 0) -> None:
    """Refuse to learn rows (n, h) beside which sums would keep too little of all the others.

    ``squares`` is what ``squares_learned`` gave; rows are numbered from ``first``. Heads without
    sums, and those behind a map that bounds its rows, learn anything.
    """
    if not (squares and len(z)):
        return
    own = z.double().square().sum(dim=1)
    row = int(own.argmax())
    fixed = head.feature_map
    if fixed is not None and fixed.fitted:
        own = fixed(z[row : row + 1]).square().sum(dim=1)
    largest = float(own.max())
    if largest > _TIMES * squares:
        times = (largest / squares) ** 0.5
        raise DataError(
            f"row {first + row} is {times:.0e} times as long as all rows learned before together, "
            "and would leave too few digits of them: leave it out, or scale it"
        )


def squares_learned(head: "Head") -> float:
    """Return Σ ‖z‖² of the rows that the sums of a head hold; 0: there are none, or too few."""
    if head.feature_map is not None and head.feature_map.rows == "unit":
        return 0.0
    rows, squares = head._squares()
    return squares if rows >= ENOUGH else 0.0
