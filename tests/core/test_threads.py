import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.core.threads import even_size, map_in_threads, thread_count
from lastlayer.heads.neighbours.nearest import extend, nobody

CPU = torch.device("cpu")


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_each_thread_has_one_core_and_the_setting_is_left_alone() -> None:
    assert thread_count(CPU) == 3
    assert map_in_threads(lambda _: torch.get_num_threads(), range(5), 3) == [1] * 5
    assert torch.get_num_threads() == 3
    assert map_in_threads(lambda _: torch.get_num_threads(), range(2), 1) == [3] * 2


@pytest.mark.usefixtures("three_threads")
def test_an_error_comes_through_and_the_setting_is_left_alone() -> None:
    with pytest.raises(ZeroDivisionError):
        map_in_threads(lambda x: 1 // x, [1, 0, 1], 3)
    assert torch.get_num_threads() == 3


@given(st.integers(1, 10_000), st.integers(1, 2000), st.integers(1, 9))
def test_pieces_are_within_bounds_and_even(n: int, most: int, threads: int) -> None:
    size = even_size(n, most, threads)
    assert 1 <= size <= most
    pieces = -(-n // size)
    rounds = -(-pieces // threads)
    assert rounds == -(-n // (most * threads))


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_neighbours_found_in_threads_are_the_same(mode: type) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, rows = (torch.randn(n, 8, generator=generator) for n in (50, 700))
    with mode():
        threaded = extend(nobody(50, 5, CPU), queries, rows)
        torch.set_num_threads(1)
        alone = extend(nobody(50, 5, CPU), queries, rows)
    assert torch.equal(threaded.row, alone.row)
    assert torch.equal(threaded.squared, alone.squared)


@pytest.mark.parametrize(("asked", "found"), [({}, "20"), ({"OPENBLAS_THREAD_TIMEOUT": "9"}, "9")])
def test_threads_of_blas_do_not_spin_unless_told(asked: dict[str, str], found: str) -> None:
    told = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"} | asked
    code = "import lastlayer, os; print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, check=True)
    assert done.stdout.decode().strip() == found
