"""A banded form of a symmetric matrix against dense solutions, determinants and inverses."""

import pytest
import torch
from torch import Tensor

from lastlayer.heads.statistics import banded
from lastlayer.heads.statistics.banded import Banded
from lastlayer.heads.statistics.least_squares import Band

SHIFTS = torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64)


def draw(h: int, rank: int, columns: int = 3) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(h)
    rows = torch.randn(rank, h, dtype=torch.float64, generator=random)
    targets = torch.randn(rank, columns, dtype=torch.float64, generator=random)
    return rows.mT @ rows, rows.mT @ targets


@pytest.mark.parametrize("rank", [0, 1, 9, 100])
@pytest.mark.parametrize(
    ("h", "band"), [(1, 4), (4, 4), (5, 4), (8, 4), (11, 4), (30, 7), (70, 32)]
)
def test_every_shift_is_solved(h: int, band: int, rank: int) -> None:
    """One block, two, and several; the last as wide as the band, narrower, or of one feature."""
    gram, cross = draw(h, rank)
    before = gram.clone()
    found = Banded(gram, band)
    assert torch.equal(gram, before)
    solutions, volumes, traces = found.solve(found.turn(cross), SHIFTS)
    for shift, solution, volume, trace in zip(SHIFTS, solutions, volumes, traces, strict=True):
        shifted = gram + shift * torch.eye(h, dtype=torch.float64)
        expected = torch.linalg.solve(shifted, cross)
        torch.testing.assert_close(found.back(solution), expected, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(volume, torch.logdet(shifted))
        torch.testing.assert_close(trace, torch.linalg.inv(shifted).trace())


def test_turning_back_undoes_turning() -> None:
    gram, cross = draw(30, 100)
    found = Banded(gram, 7)
    assert not torch.allclose(found.turn(cross), cross)
    torch.testing.assert_close(found.back(found.turn(cross)), cross)


def test_shifts_are_solved_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    gram, cross = draw(70, 100)
    at_once = Band(gram, cross).fits(SHIFTS)
    monkeypatch.setattr(banded, "_ROOM", 1)
    for ours, expected in zip(Band(gram, cross).fits(SHIFTS), at_once, strict=True):
        assert torch.equal(ours, expected)
