from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lastlayer.heads.neighbours import nearest
from lastlayer.heads.neighbours.nearest import Nearest, extend, nobody

CPU = torch.device("cpu")
STATUS = Path("/proc/self/status")


def search(queries: Tensor, rows: Tensor, k: int) -> Nearest:
    return extend(nobody(queries.shape[0], k, CPU), queries, rows)


def brute_force(queries: Tensor, rows: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """All squared distances in float64, sorted by (distance, row number)."""
    q, m = queries.double().numpy(), rows.double().numpy()
    squared = ((q[:, None] - m[None]) ** 2).sum(2)
    order = np.argsort(squared, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(squared, order, 1), order


def check(queries: Tensor, rows: Tensor, k: int) -> None:
    squared, order = brute_force(queries, rows, k)
    found, width = search(queries, rows, k), order.shape[1]
    assert np.array_equal(found.row[:, :width].numpy(), order)
    np.testing.assert_allclose(found.squared[:, :width].numpy(), squared, rtol=1e-12)
    assert (found.row[:, width:] == -1).all()
    assert found.squared[:, width:].isinf().all()


@contextmanager
def small_tiles() -> Iterator[None]:
    """Work in so small pieces that every seam between them is met."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("TILE", 64), ("QUERIES", 8), ("ROWS", 8), ("PAIRS", 16), ("_RUN", 3)):
            patch.setattr(nearest, name, value)
        yield


@st.composite
def problems(draw: st.DrawFn, ties: bool) -> tuple[Tensor, Tensor, int]:
    h, k = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    n, m = draw(st.integers(1, 20)), draw(st.integers(1, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    if ties:
        x = torch.randint(-1, 2, (n + m, h), generator=generator).float()
    else:
        x = torch.randn(n + m, h, generator=generator)
    return x[:n], x[n:], k


@given(problems(ties=True))
def test_equal_distances_go_by_row_number(problem: tuple[Tensor, Tensor, int]) -> None:
    check(*problem)
    with small_tiles():
        check(*problem)


@given(problems(ties=False), st.sampled_from([0.0, 1e4]), st.sampled_from([1e-30, 1.0, 1e30]))
def test_equals_brute_force(
    problem: tuple[Tensor, Tensor, int], offset: float, scale: float
) -> None:
    queries, rows, k = problem
    with small_tiles():
        check((queries + offset) * scale, (rows + offset) * scale, k)


@given(problems(ties=False), st.lists(st.integers(0, 40), max_size=4), st.integers(1, 20))
def test_pieces_give_the_same_bits(
    problem: tuple[Tensor, Tensor, int], cuts: list[int], size: int
) -> None:
    queries, rows, k = problem
    whole = search(queries, rows, k)
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = []
    for block in queries.split(size):
        part = nobody(block.shape[0], k, CPU)
        for start, stop in pairwise(ends):
            part = extend(part, block, rows[start:stop], start)
        parts.append(part)
    assert torch.equal(torch.cat([part.row for part in parts]), whole.row)
    assert torch.equal(torch.cat([part.squared for part in parts]), whole.squared)


def test_several_full_tiles() -> None:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(60, 20, generator=generator)
    rows = torch.randn(4500, 20, generator=generator)
    for dtype in (torch.float16, torch.float32, torch.float64):
        check(queries, rows.to(dtype), 5)
    check(queries, (rows * 4).round(), 1500)


def test_rows_sorted_from_far_to_near_and_far_outliers() -> None:
    rows = torch.linspace(1, 0, 6000)[:, None] * torch.ones(1, 8)
    check(torch.rand(50, 8), rows, 5)
    rows[7] = 1e12
    check(torch.rand(50, 8), rows, 5)


def test_rows_that_tie_far_away_from_the_query() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randperm(50, generator=generator) for _ in range(3000)]).float()
    queries = torch.tensor([[1e4], [-(2.0**20)]]).expand(2, 50)
    assert search(queries, rows, 5).row.tolist() == [[0, 1, 2, 3, 4]] * 2


def test_numbers_at_the_ends_of_float32() -> None:
    x = torch.rand(100, 8, generator=torch.Generator().manual_seed(0)) - 0.5
    for scale in (6.6e38, 1e-43):
        scaled = (x.double() * scale).float()
        check(scaled[:20], scaled[20:], 5)


def _medium(queries: Tensor, rows: Tensor) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert nearest.fit_frame(queries, rows).dtype == torch.float64
        check(queries, rows, 5)
    finally:
        torch.set_float32_matmul_precision(before)


def _autocast(queries: Tensor, rows: Tensor) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(queries, rows, 5)


@pytest.mark.parametrize("within", [_medium, _autocast])
def test_exact_where_products_are_rounded(within: Callable[[Tensor, Tensor], None]) -> None:
    generator = torch.Generator().manual_seed(0)
    within(torch.randn(50, 64, generator=generator), torch.randn(3000, 64, generator=generator))


def _anonymous(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not STATUS.exists(), reason="needs Linux's account of memory")
@pytest.mark.parametrize(
    ("n", "m", "h", "k"), [(2048, 2100, 2, 5), (6000, 9000, 64, 3), (50, 4000, 2, 4000)]
)
def test_takes_less_than_256_mb_even_where_all_rows_tie(n: int, m: int, h: int, k: int) -> None:
    ties = h == 2
    queries, rows = (torch.ones(x, h) if ties else torch.rand(x, h) for x in (n, m))
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _anonymous("VmRSS")
    found = search(queries, rows, k)
    assert _anonymous("VmHWM") - before < 256e6
    assert not ties or torch.equal(found.row, torch.arange(k).expand(n, k))


@settings(max_examples=10)
@given(st.integers(1, 3))
def test_no_rows_and_no_queries_change_nothing(k: int) -> None:
    some = search(torch.rand(4, 2), torch.rand(9, 2), k)
    assert extend(some, torch.rand(4, 2), torch.empty(0, 2), 9) is some
    assert search(torch.empty(0, 2), torch.rand(3, 2), k).row.shape == (0, k)
