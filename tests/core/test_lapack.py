"""LAPACK without Python's lock: the same numbers as scipy's functions, to the bit."""

import numpy as np
import pytest
from scipy.linalg import lapack as scipys

from lastlayer.core import blas


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("h", [2, 5, 70])
def test_it_is_as_scipy_has_it(h: int, direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not direct:
        monkeypatch.setattr(blas, "_function", lambda name: None)
    rows = np.random.default_rng(h).normal(size=(h + 3, h))
    gram = np.asfortranarray(rows.T @ rows)
    work, _ = scipys.dsytrd_lwork(h, lower=1)
    expected = scipys.dsytrd(gram.copy(order="F"), lower=1, lwork=int(work))
    found = blas.tridiagonal(gram)
    np.testing.assert_array_equal(np.tril(gram), np.tril(expected[0]))
    for ours, theirs in zip(found, expected[1:4], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    values = blas.eigenvalues(found[0], found[1])
    np.testing.assert_allclose(values, np.linalg.eigvalsh(rows.T @ rows), atol=1e-10 * h)
