import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lastlayer.errors import UnknownNameError
from lastlayer.heads.neighbours.row_budget import Budget, _rough_sums, centrality, summed_distance
from lastlayer.heads.neighbours.stored_rows import Memory


def stored(z: Tensor, y: Tensor, keep: str, *, seed: int = 0, batch: int = 7) -> Memory:
    """Stream rows into a memory whose classes are cut to 4 rows after each batch."""
    memory, budget = Memory(z.shape[1]), Budget(4, 4, keep, seed)
    for part_z, part_y in zip(z.split(batch), y.split(batch), strict=True):
        memory.append(part_z, part_y)
        budget.admit(part_z.shape[0])
        budget.cut(memory)
    return memory


def test_first_keeps_the_earliest_rows_of_each_class() -> None:
    z, y = torch.arange(30.0)[:, None], torch.tensor([0, 1, 1] * 10)
    memory = stored(z, y, "first")
    assert memory.z.flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 9]
    assert memory.y.tolist() == [0, 1, 1, 0, 1, 1, 0, 0]


def test_random_does_not_depend_on_the_batches_but_on_the_seed() -> None:
    z, y = torch.arange(90.0)[:, None], torch.arange(90) % 3
    whole = stored(z, y, "random", batch=90)
    assert whole.y.bincount().tolist() == [4, 4, 4]
    for batch in (1, 13):
        assert torch.equal(stored(z, y, "random", batch=batch).z, whole.z)
    assert not torch.equal(stored(z, y, "random", seed=1).z, whole.z)


def test_random_is_a_uniform_sample() -> None:
    z, y = torch.arange(12.0)[:, None], torch.zeros(12, dtype=torch.int64)
    kept = [stored(z, y, "random", seed=seed).z.flatten().long() for seed in range(600)]
    often = torch.cat(kept).bincount(minlength=12).double()
    assert ((often - 200).abs() < 4 * 200**0.5).all()


def test_central_keeps_the_rows_with_the_least_summed_distance() -> None:
    z = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1] * 30)
    memory = stored(z, y, "central", batch=60)
    for c in (0, 1):
        rows = z[y == c].double().numpy()
        distance = np.linalg.norm(rows[:, None] - rows[None], axis=2).sum(1)
        best = np.sort(np.argsort(distance, kind="stable")[:4])
        assert np.array_equal(memory.z[memory.y == c].numpy(), rows[best])


def test_central_keeps_the_earlier_of_equal_rows() -> None:
    memory, budget = Memory(2), Budget(4, 4, "central", 0)
    memory.append(torch.tensor([[9.0, 9.0], *[[0.3, 0.1]] * 6]), torch.zeros(7, dtype=torch.int64))
    budget.admit(7)
    before = budget.priority
    budget.cut(memory)
    assert torch.equal(budget.priority, before[1:5])


def test_classes_up_to_the_limit_are_left_alone() -> None:
    memory, budget = Memory(1), Budget(size=2, limit=5, keep="first", seed=0)
    memory.append(torch.arange(11.0)[:, None], torch.tensor([0] * 5 + [1] * 6))
    budget.admit(11)
    budget.cut(memory)
    assert memory.y.tolist() == [0] * 5 + [1] * 2
    assert memory.rewrites == 1
    budget.cut(memory)
    assert memory.rewrites == 1


def test_summed_distance_is_taken_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    whole = summed_distance(z)
    monkeypatch.setattr("lastlayer.heads.neighbours.row_budget._TILE", 200)
    torch.testing.assert_close(summed_distance(z), whole, rtol=1e-15, atol=0)


@given(
    st.integers(0, 2**32),
    st.integers(2, 40),
    st.booleans(),
    st.sampled_from([0.0, 1e6]),
    st.sampled_from([1e-310, 1e-160, 1e-30, 1.0, 1e30, 1e160]),
    st.data(),
)
def test_products_choose_as_exact_sums_do(
    seed: int, n: int, ties: bool, offset: float, scale: float, data: st.DataObject
) -> None:
    z = torch.randn(n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    z = ((z.round() if ties else z) + offset) * scale
    size = data.draw(st.integers(1, n - 1))
    exact = summed_distance(z).argsort(stable=True)[:size]
    chosen = centrality(z, size).argsort(stable=True)[:size]
    assert torch.equal(chosen.sort().values, exact.sort().values)


@pytest.mark.parametrize(("h", "offset"), [(2, 0.0), (64, 0.0), (64, 1e7), (2000, 1.0)])
def test_sums_by_products_are_no_more_wrong_than_stated(h: int, offset: float) -> None:
    z = torch.randn(300, h, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    z = torch.cat([z, z[:100]]) + offset  # equal rows have the worst roots
    sums, error = _rough_sums(z)
    exact = summed_distance(z)
    assert ((sums - exact).abs() <= error).all()
    assert error < 1e-5 * exact.min()


def test_only_rows_at_the_edge_are_summed_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    z[100:] = z[:100]
    looked = []

    def watched(z: Tensor, which: Tensor) -> Tensor:
        looked.append(int(which.sum()))
        return summed_distance(z, which)

    monkeypatch.setattr("lastlayer.heads.neighbours.row_budget.summed_distance", watched)
    centrality(z, 50)
    assert looked == [2]  # the 50th row and its equal


def test_an_unknown_way_to_keep_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'central'"):
        Budget(1, 1, "centre", 0)
