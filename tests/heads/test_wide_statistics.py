"""Wide statistics take half a matrix, and one change frees what the one before it has left."""

import gc
import sys
import weakref
from pathlib import Path

import pytest
import torch

from lastlayer.heads import make_head
from lastlayer.heads.statistics.class_statistics import ClassStatistics
from lastlayer.heads.statistics.moments import lower_copy, lower_zeros, symmetric
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
