import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from lastlayer.heads.neighbours import nearest
from lastlayer.heads.neighbours.nearest import FixedQueries, Nearest, extend, nobody
from lastlayer.heads.neighbours.stored_rows import Memory


def rows(n: int, seed: int, ties: bool = False) -> Tensor:
    z = torch.randn(n, 2, generator=torch.Generator().manual_seed(seed))
    return z.round() if ties else z


def anew(queries: Tensor, k: int, memory: Memory) -> Nearest:
    return extend(nobody(len(queries), k, queries.device), queries, memory.z)


def append(memory: Memory, z: Tensor) -> None:
    memory.append(z, torch.zeros(len(z), dtype=torch.int64))


@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 6), st.data())
def test_equals_looking_anew_whatever_comes_and_goes(
    seed: int, ties: bool, k: int, data: st.DataObject
) -> None:
    queries, memory = rows(15, seed, ties), Memory(2)
    fixed = FixedQueries(queries, k, memory)
    for step in range(data.draw(st.integers(1, 6))):
        append(memory, rows(data.draw(st.integers(0, 12)), seed + step + 1, ties))
        if data.draw(st.booleans()):
            stays = data.draw(st.lists(st.booleans(), min_size=len(memory), max_size=len(memory)))
            memory.keep(torch.tensor(stays, dtype=torch.bool).nonzero().flatten())
        if data.draw(st.booleans()):
            found, expected = fixed.nearest(), anew(queries, k, memory)
            assert torch.equal(found.row, expected.row)
            assert torch.equal(found.squared, expected.squared)


def test_looks_at_new_rows_only_and_at_old_ones_for_those_who_lost_a_neighbour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked = []

    def watched(found: Nearest, queries: Tensor, rows: Tensor, first: int = 0) -> Nearest:
        looked.append((len(queries), first, len(rows)))
        return extend(found, queries, rows, first)

    monkeypatch.setattr(nearest, "extend", watched)
    queries, memory = torch.tensor([[0.0, 0.0], [9.0, 9.0]]), Memory(2)
    fixed = FixedQueries(queries, 2, memory)
    for _ in range(2):
        append(memory, torch.tensor([[1.0, 1.0], [8.0, 8.0], [4.0, 4.0]]))
        fixed.nearest()
    assert looked == [(2, 0, 3), (2, 3, 3)]
    memory.keep(torch.tensor([0, 1, 3, 4]))  # rows that nobody is near to go
    append(memory, torch.zeros(1, 2))
    fixed.nearest()
    assert looked[2:] == [(0, 0, 4), (2, 4, 1)]
    memory.keep(torch.tensor([0, 1, 2, 4]))  # a neighbour of the second query goes
    assert fixed.nearest().row.tolist() == [[3, 0], [1, 0]]
    assert looked[4:] == [(1, 0, 4), (2, 4, 0)]


def test_a_memory_that_was_loaded_is_looked_at_anew() -> None:
    queries, memory, other = rows(9, 0), Memory(2), Memory(2)
    fixed = FixedQueries(queries, 3, memory)
    append(memory, rows(20, 1))
    append(other, rows(20, 2))
    fixed.nearest()
    memory.load_state_dict(other.state_dict())
    assert torch.equal(fixed.nearest().row, anew(queries, 3, other).row)
