import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController
from torch import Tensor

from lastlayer.core import blas
from lastlayer.core import threads as core_threads
from lastlayer.core.blas import add_symmetric
from lastlayer.core.threads import blas_threads, map_in_threads, one_core_each

LAID_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "one after another": lambda rows: rows,
    "every second row": lambda rows: rows.repeat_interleave(2, 0)[::2],
    "some columns of more": lambda rows: torch.cat([rows, rows + 1], 1)[:, : rows.shape[1]],
    "by column": lambda rows: rows.mT.contiguous().mT,
    "every second column": lambda rows: rows.repeat_interleave(2, 1)[:, ::2],
    "the first row again and again": lambda rows: rows[:1].expand(len(rows), -1),
}
WAYS = ("BLAS", "scipy", "PyTorch")


@pytest.fixture
def all_by_blas() -> Iterator[None]:
    """Leave no product to PyTorch because it is small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blas, "_SYRK_FROM", 1)
        yield


@pytest.fixture
def three_threads() -> Iterator[None]:
    libraries = ThreadpoolController().select(user_api="blas")
    limit = libraries.limit(limits=3)
    yield
    limit.restore_original_limits()


def threads() -> set[int]:
    return {one["num_threads"] for one in ThreadpoolController().select(user_api="blas").info()}


@given(
    n=st.integers(0, 9),
    h=st.integers(0, 9),
    layout=st.sampled_from(list(LAID_OUT)),
    sign=st.sampled_from([1, -1]),
    way=st.sampled_from(WAYS),
)
def test_it_is_the_product(n: int, h: int, layout: str, sign: int, way: str) -> None:
    """However rows lie in memory, below the diagonal it is what numpy computes."""
    random = torch.Generator().manual_seed(n + 10 * h)
    rows = LAID_OUT[layout](torch.randn(n, h, dtype=torch.float64, generator=random))
    scatter = torch.randn(h, h, dtype=torch.float64, generator=random)
    given, before = rows.numpy().copy(), scatter.numpy().copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blas, "_SYRK_FROM", 1 if way != "PyTorch" else 10**9)
        if way == "scipy":
            patch.setattr(blas, "_function", lambda name: None)
        add_symmetric(scatter, rows, sign)
    expected = before + sign * np.einsum("ni,nj->ij", given, given)
    np.testing.assert_allclose(np.tril(scatter.numpy()), np.tril(expected), rtol=0, atol=1e-12)
    assert np.array_equal(rows.numpy(), given)


@pytest.mark.usefixtures("all_by_blas")
def test_nothing_beside_the_scatter_is_written() -> None:
    around = torch.zeros(5, 4, 4, dtype=torch.float64)
    add_symmetric(around[2], torch.ones(3, 4, dtype=torch.float64))
    assert around[2].tril().equal(torch.full((4, 4), 3.0, dtype=torch.float64).tril())
    assert not around[[0, 1, 3, 4]].any()
    within = torch.zeros(4, 8, dtype=torch.float64)
    add_symmetric(within[:, ::2], torch.ones(3, 4, dtype=torch.float64))
    assert within[:, ::2].tril().equal(around[2].tril())
    assert not within[:, 1::2].any()


def test_threads_add_up_as_one_does() -> None:
    random = torch.Generator().manual_seed(0)
    batches = [torch.randn(400, 60, dtype=torch.float64, generator=random) for _ in range(8)]

    def add(rows: Tensor) -> Tensor:
        scatter = torch.zeros(60, 60, dtype=torch.float64)
        for _ in range(20):
            add_symmetric(scatter, rows)
        return scatter.tril()

    for rows, found in zip(batches, map_in_threads(add, batches, 4), strict=True):
        torch.testing.assert_close(found, 20 * (rows.mT @ rows).tril(), rtol=0, atol=1e-9)


def test_this_build_of_scipy_has_the_functions_that_are_expected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in blas._SIGNATURES:
        assert blas._function(name) is not None
    monkeypatch.setattr(blas, "_SIGNATURES", dict.fromkeys(blas._SIGNATURES, r"void \(long \*\)"))
    for name in blas._SIGNATURES:
        assert blas._function.__wrapped__(name) is None


@pytest.mark.parametrize("multiplies", [True, False])
def test_other_threads_go_on_meanwhile(multiplies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's lock is let go by the product, and by nothing else: no thread gives it up itself."""
    if not multiplies:
        monkeypatch.setattr(blas, "_function", lambda name: lambda *_: None)
    rows = torch.ones(3000, 200, dtype=torch.float64)
    scatter = torch.zeros(200, 200, dtype=torch.float64)
    go, been = threading.Event(), []
    other = threading.Thread(target=lambda: (go.wait(), been.append(True)))
    before = sys.getswitchinterval()
    with blas_threads(1):
        try:
            sys.setswitchinterval(1000)
            other.start()
            go.set()
            for _ in range(1000):
                add_symmetric(scatter, rows)
                if been:
                    break
            found = bool(been)
        finally:
            sys.setswitchinterval(before)
    other.join()
    assert found == multiplies


@pytest.mark.usefixtures("three_threads")
def test_a_limit_is_shared_and_put_back() -> None:
    assert threads() == {3}
    with blas_threads(1):
        with blas_threads(2):
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == {3}
    with contextlib.suppress(ZeroDivisionError), blas_threads(2):
        assert threads() == {2}
        raise ZeroDivisionError
    assert threads() == {3}


@pytest.mark.usefixtures("three_threads")
def test_the_last_of_several_threads_puts_it_back() -> None:
    inside, out = threading.Event(), threading.Event()

    def stay() -> None:
        with blas_threads(2):
            inside.set()
            out.wait()

    other = threading.Thread(target=stay)
    with blas_threads(1):
        other.start()
        inside.wait()
    assert threads() == {1}
    out.set()
    other.join()
    assert threads() == {3}


@pytest.mark.usefixtures("three_threads")
def test_threads_of_one_core_each_have_one_of_blas() -> None:
    with one_core_each(2) as pool:
        assert list(pool.map(lambda _: threads(), range(4))) == [{1}] * 4
    assert threads() == {3}


@pytest.mark.usefixtures("three_threads")
def test_a_block_that_an_interrupt_keeps_from_ending_ends_with_its_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(self: object) -> None:
        raise KeyboardInterrupt

    def work() -> None:
        with blas_threads(1):
            assert threads() == {1}
            monkeypatch.setattr(core_threads._Limit, "end", interrupt)

    with contextlib.suppress(KeyboardInterrupt):
        work()
    assert threads() == {3}
