import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lastlayer.heads.neighbours.stored_rows import Memory


def filled(n: int, h: int = 3, dtype: torch.dtype = torch.float32) -> Memory:
    memory = Memory(h)
    memory.append(torch.arange(n * h, dtype=dtype).reshape(n, h), torch.arange(n))
    return memory


@given(st.lists(st.integers(0, 40), max_size=12))
def test_holds_what_was_appended_in_order(sizes: list[int]) -> None:
    batches = [torch.randn(n, 3) for n in sizes]
    memory = Memory(3)
    for i, z in enumerate(batches):
        memory.append(z, torch.full((len(z),), i))
    assert torch.equal(memory.z, torch.cat([torch.empty(0, 3), *batches]))
    assert memory.y.tolist() == [i for i, n in enumerate(sizes) for _ in range(n)]
    assert len(memory) == sum(sizes)


def test_copies_only_when_full() -> None:
    memory, moves, place = Memory(3), 0, 0
    for i in range(1000):
        memory.append(torch.full((1, 3), float(i)), torch.tensor([i]))
        moves, place = moves + (memory.z.data_ptr() != place), memory.z.data_ptr()
    assert moves <= 11
    assert memory.y.tolist() == list(range(1000))


def test_keeps_the_named_rows_and_says_so() -> None:
    memory = filled(5)
    assert memory.rewrites == 0
    memory.keep(torch.tensor([0, 3]))
    assert memory.z.tolist() == [[0, 1, 2], [9, 10, 11]]
    assert memory.y.tolist() == [0, 3]
    assert memory.rewrites == 1
    memory.append(torch.ones(1, 3), torch.tensor([9]))
    assert memory.y.tolist() == [0, 3, 9]
    assert memory.rewrites == 1


def test_numbers_ascend_and_are_never_given_again() -> None:
    memory = filled(5)
    before = memory.number
    memory.keep(torch.tensor([0, 3]))
    memory.append(torch.ones(2, 3), torch.tensor([9, 9]))
    assert memory.number.tolist() == [0, 3, 5, 6]
    assert before.tolist() == [0, 1, 2, 3, 4]
    memory.load_state_dict(memory.state_dict())
    assert memory.number.tolist() == [7, 8, 9, 10]


def test_rows_keep_their_type_and_a_wider_one_widens() -> None:
    memory = filled(2, dtype=torch.float16)
    assert memory.z.dtype == torch.float16
    third = torch.full((1, 3), 1 / 3, dtype=torch.float64)
    memory.append(third, torch.tensor([2]))
    assert memory.z.dtype == torch.float64
    assert torch.equal(memory.z[2:], third)
    memory.append(third.float(), torch.tensor([3]))
    assert memory.z.dtype == torch.float64


def test_stores_copies() -> None:
    z, memory = torch.zeros(2, 3), Memory(3)
    memory.append(z, torch.tensor([0, 1]))
    z += 1
    assert memory.z.abs().sum() == 0


@pytest.mark.parametrize("size", [0, 2, 50])
def test_state_loads_into_a_memory_of_any_size(size: int) -> None:
    source, target = filled(5, dtype=torch.float16), filled(size)
    source.append(torch.ones(1, 3), torch.tensor([5]))
    state = source.state_dict()
    assert state["z"].shape == (6, 3)
    target.load_state_dict(state)
    target.append(torch.zeros(1, 3), torch.tensor([6]))
    assert torch.equal(target.z[:6], source.z)
    assert target.y.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert len(source) == 6


def test_state_of_another_shape_is_refused() -> None:
    memory = filled(5)
    with pytest.raises(RuntimeError, match=r"expected z of shape \(n, 3\)"):
        memory.load_state_dict(filled(4, h=2).state_dict())
    with pytest.raises(RuntimeError, match="Missing key"):
        memory.load_state_dict({"z": torch.zeros(1, 3)})
    assert len(memory) == 5


def test_copies_are_apart() -> None:
    memory = filled(3)
    twin = copy.deepcopy(memory)
    twin.append(torch.zeros(1, 3), torch.tensor([3]))
    assert (len(memory), len(twin)) == (3, 4)
    assert memory.y.tolist() == [0, 1, 2]
