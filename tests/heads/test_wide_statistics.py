"""Wide statistics take half a matrix, and one change frees what the one before it has left."""

import copy
import gc
import sys
import weakref
from pathlib import Path

import pytest
import torch

from lastlayer.catalogue.map_widths import half
from lastlayer.core import packed
from lastlayer.core.blas import factor_in_place
from lastlayer.core.packed import lower_copy, lower_zeros, symmetric
from lastlayer.errors import StateError
from lastlayer.heads import load_head, make_head
from lastlayer.heads.head_file import _check_values
from lastlayer.heads.statistics.class_statistics import ClassStatistics
from lastlayer.heads.undo import AllOrNothing

WIDTH = 3000
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def resident() -> int:
    """Return the bytes of memory that this process has been given."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.skipif(
    HUGE_PAGES.exists() and "[always]" in HUGE_PAGES.read_text(), reason="memory comes in 2 MB"
)
def test_of_a_wide_matrix_memory_above_the_diagonal_is_never_taken() -> None:
    whole = 8 * WIDTH**2
    before = resident()
    lower = lower_zeros((WIDTH, WIDTH))
    assert resident() - before < 0.7 * whole
    before = resident()
    other = lower_copy(lower)
    assert resident() - before < 0.7 * whole
    assert torch.equal(other.tril(), lower.tril())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.skipif(
    HUGE_PAGES.exists() and "[always]" in HUGE_PAGES.read_text(), reason="memory comes in 2 MB"
)
def test_wide_statistics_from_a_file_a_copy_and_a_merge_take_half_a_matrix(tmp_path: Path) -> None:
    whole = 8 * WIDTH**2
    z, y = torch.randn(90, WIDTH, dtype=torch.float64), torch.arange(90) % 3
    head = make_head("slda", WIDTH)
    head.observe(z, y)
    head.statistics.fold()
    head.save(tmp_path / "head")
    assert (tmp_path / "head").stat().st_size < 0.6 * whole
    made = []
    for make in (lambda: load_head(tmp_path / "head"), lambda: copy.deepcopy(head)):
        before = resident()
        made.append(make())
        assert resident() - before < 0.9 * whole
        assert torch.equal(made[-1].statistics.scatter.tril(), head.statistics.scatter.tril())
    before = resident()
    made.append(made[0].merge(made[1]))
    assert resident() - before < 0.9 * whole
    twice = 2 * head.statistics.pooled_scatter()
    torch.testing.assert_close(made[-1].statistics.pooled_scatter(), twice)


def test_a_wide_file_may_hold_anything_above_its_diagonals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that is not written to may hold anything; nothing reads it."""
    monkeypatch.setattr(packed, "WIDE", 100)
    empty_like, empty = torch.empty_like, torch.empty
    monkeypatch.setattr(torch, "empty_like", lambda t: empty_like(t).fill_(torch.nan))
    monkeypatch.setattr(torch, "empty", lambda s, dtype: empty(s, dtype=dtype).fill_(torch.nan))
    lower = packed.unpack(torch.arange(300 * 301 // 2, dtype=torch.float64))
    assert lower[0, 299].isnan()
    other = packed.lower_copy(lower)
    packed.add_lower(other, lower)
    assert torch.equal(other.tril(), 2 * lower.tril())
    assert packed.symmetric(lower).isfinite().all()
    _check_values("statistics.scatter", lower, 0)
    lower[200, 3] = torch.nan
    with pytest.raises(StateError, match=r"statistics\.scatter' must be finite"):
        _check_values("statistics.scatter", lower, 0)


@pytest.mark.parametrize("h", [100, 2899, 2900, 2944, 9984, 10_000])
def test_the_card_counts_the_memory_that_a_scatter_takes(h: int) -> None:
    parts = packed.lower_parts(torch.empty(h, h, device="meta"))
    assert 0 <= half(h) - sum(part.numel() for part in parts) < 0.01 * h * h


@pytest.mark.parametrize("h", [1, 2, 300])
def test_a_factor_in_place_is_the_factor(h: int) -> None:
    rows = torch.randn(2 * h, h, dtype=torch.float64)
    matrix = rows.mT @ rows
    expected = torch.linalg.cholesky(matrix)
    lower = matrix.tril()
    lower[0, 1:] = torch.nan  # it is not read
    assert not factor_in_place(lower)
    torch.testing.assert_close(lower, expected, rtol=1e-9, atol=1e-9)
    assert factor_in_place(-matrix)


@pytest.mark.parametrize("h", [1, 7, 128, 129, 700])
def test_a_lower_triangle_makes_the_whole_matrix(h: int) -> None:
    lower = torch.randn(2, h, h, dtype=torch.float64)
    assert torch.equal(symmetric(lower), lower.tril() + lower.tril(-1).mT)


def test_wide_statistics_are_what_the_rows_say_after_changes_that_succeed_and_fail() -> None:
    z, y = torch.randn(60, WIDTH, dtype=torch.float64), torch.arange(60) % 3
    s = ClassStatistics(WIDTH, 3, "pooled")

    def change(rows: slice, *, fails: bool = False) -> None:
        with AllOrNothing(s):
            s.add(z[rows], y[rows])
            s.fold()
            if fails:
                raise KeyboardInterrupt

    change(slice(0, 30))
    change(slice(30, 60))
    with pytest.raises(KeyboardInterrupt):
        change(slice(0, 60), fails=True)
    apart = z - torch.stack([z[y == c].mean(dim=0) for c in range(3)])[y]
    assert float((s.pooled_scatter() - apart.mT @ apart).abs().max()) < 1e-10


@pytest.mark.parametrize("name", ["slda", "random_ridge"])
def test_a_change_frees_the_scatter_before_it(name: str) -> None:
    """Not only once garbage is collected: behind a wide map it may be hundreds of megabytes."""
    head = make_head(name, 64, 3, **({"width": 100, "map": "fourier"} if name != "slda" else {}))
    z, y = torch.randn(5000, 64), torch.arange(5000) % 3
    s = head.inner.statistics if name == "random_ridge" else head.statistics
    s.second = None
    head.observe(z, y)
    s.second = None
    gc.disable()
    try:
        old = weakref.ref(s.scatter)
        head.observe(z, y)
        s.second = None  # the memory that the next change would write to
        assert old() is None
    finally:
        gc.enable()
