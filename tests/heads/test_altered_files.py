"""Files of heads that were altered and given a new checksum are refused, or do no harm."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from streams import EVERY_HEAD, ONE_OF_EACH_KIND, H, blobs, trained
from torch import Tensor

from lastlayer import HeadClassifier
from lastlayer.core.tensor_files import read_tensors, write_tensors
from lastlayer.errors import FileFormatError, LastLayerError
from lastlayer.heads import load_head, make_head

TRIES, KINDS = 25, [*ONE_OF_EACH_KIND, ("qda", "exact"), ("sampled_linear", "exact")]
Z, Y = blobs(n_classes=4)
ODD: list[Any] = [
    None, True, -1, 0, 1, 2, 7, 10**6, 10**12, 10**30, 0.5, -2.0, float("inf"), float("nan"), "",
    "exact", "x" * 2000, [], [1], ["a"], ["a", "a", "b"], {}, {"a": 1}, [[]], {"temperature": 1.0},
]  # fmt: skip


@contextlib.contextmanager
def little_memory(size: int = 2 << 30) -> Iterator[None]:
    """Let this process take so many more bytes of address space."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def alter_tensor(state: dict[str, Tensor], random: Random) -> None:
    name = random.choice(sorted(state))
    tensor = state[name].clone()
    change = random.randrange(9)
    if change == 0:
        del state[name]
    elif change == 1:
        state[random.choice(["", "x", f"{name}.x", "solved.weight"])] = tensor
    elif change == 2:
        state[name] = tensor.to(random.choice([torch.float16, torch.float64, torch.int64]))
    elif change == 3:
        state[name] = tensor[..., None] if random.random() < 0.5 else tensor.flatten()[:0]
    elif change == 4 and tensor.dim():
        state[name] = torch.cat([tensor, tensor]) if random.random() < 0.5 else tensor[:-1]
    elif change == 5 and tensor.dim():
        state[name] = torch.cat([tensor, tensor], dim=-1)
    elif tensor.numel():
        odd = [0, 1, -1, 3, 10**6]
        if tensor.is_floating_point():
            odd += [1e30, -1e30, 1e300, float("nan"), float("inf")]
        value = torch.tensor(random.choice(odd), dtype=torch.float64)
        tensor.view(-1)[random.randrange(tensor.numel())] = value.to(tensor.dtype)
        state[name] = tensor


def alter_document(document: dict[str, Any], random: Random) -> None:
    place: Any = random.choice([document, *(x for x in document.values() if isinstance(x, dict))])
    deeper = [x for x in place.values() if isinstance(x, dict) and x]
    if deeper and random.random() < 0.5:
        place = random.choice(deeper)
    if not place or random.random() < 0.1:
        place[random.choice(["seed", "width", "n_classes", "change", "packed"])] = random.choice(
            ODD
        )
    else:
        place[random.choice(sorted(place))] = random.choice(ODD)


def use(path: Path, random: Random) -> None:
    """Do what one does with a head; errors of ours are fine."""
    classifier = random.random() < 0.5
    with contextlib.suppress(LastLayerError):
        head = HeadClassifier.load(path).head_ if classifier else load_head(path)
        acts = (
            lambda: head.predict(Z), lambda: head.novelty(Z[:2]), lambda: head.merge(head),
            lambda: head.probabilities(Z[:2]), lambda: head.forget(Z[:1], Y[:1]),
            lambda: head.forget_class(1), lambda: head.observe(Z[:3], Y[:3]), lambda: head(Z[:2]),
            lambda: head.class_counts, lambda: head.save(path),
        )  # fmt: skip
        for act in acts:
            with contextlib.suppress(LastLayerError):
                act()


def attempt(name: str, preset: str, path: Path, seed: int) -> None:
    random = Random(f"{name} {preset} {seed}")
    head = trained(name, preset)
    head.class_names = ["cat", "dog", "owl"]
    if random.random() < 0.5:
        head(Z)
        head.calibrate(Z[Y < 3] + 0.01, Y[Y < 3])
    if name == "random_ridge" and random.random() < 0.7:
        head = head.fresh(3, first=torch.randn(1000, H))
        head.observe(*blobs())
    head.records.update(change=3, deltas={"shop": [1]})
    head.save(path)
    state, document = read_tensors(path, "head")
    for _ in range(random.choice([1, 1, 2])):
        if random.random() < 0.6:
            alter_tensor(state, random)
        else:
            alter_document(document, random)
    write_tensors(path, "head", state, document)
    use(path, random)


@pytest.mark.parametrize(("name", "preset"), KINDS)
def test_an_altered_file_is_refused_or_harmless(name: str, preset: str, tmp_path: Path) -> None:
    with little_memory():
        for seed in range(TRIES):
            attempt(name, preset, tmp_path / f"{seed}", seed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "preset"), EVERY_HEAD)
def test_many_altered_files_are_refused_or_harmless(name: str, preset: str, tmp_path: Path) -> None:
    with little_memory():
        for seed in range(TRIES, TRIES + 100):
            attempt(name, preset, tmp_path / f"{seed}", seed)


@pytest.mark.parametrize("name", ["linear", "slda", "knn", "random_ridge"])
def test_a_head_without_classes_has_no_rows_of_any(name: str, tmp_path: Path) -> None:
    head = trained(name, "exact")
    head.save(tmp_path / "head")
    state, document = read_tensors(tmp_path / "head", "head")
    state["seen"] = state["seen"][:0]
    write_tensors(tmp_path / "head", "head", state, document)
    with pytest.raises(
        FileFormatError, match=r"must have a row for each of 0 classes|must be below 0"
    ):
        load_head(tmp_path / "head")


@pytest.mark.parametrize("name", ["slda", "ridge", "random_ridge", "qda", "mean", "linear", "knn"])
@pytest.mark.parametrize("size", [10**5, 10**6, 10**9])
def test_a_small_file_does_not_ask_for_much_memory(name: str, size: int, tmp_path: Path) -> None:
    """Settings of a huge head, alone or with tensors without rows that agree."""
    head = make_head(name, H)
    head.save(tmp_path / "head")
    state, document = read_tensors(tmp_path / "head", "head")
    settings = {**document["settings"], "in_features": size}
    settings |= {"width": size} if name == "random_ridge" else {}
    settings |= {"budget": 1 << 62} if "budget" in settings else {}
    empty = {
        name: tensor.new_zeros(0, size) if tensor.shape == (0, H) else tensor
        for name, tensor in state.items()
    }
    for held in (state, empty):
        write_tensors(tmp_path / "head", "head", held, {**document, "settings": settings})
        with little_memory(1 << 28), contextlib.suppress(FileFormatError):
            load_head(tmp_path / "head")
            assert name in ("mean", "linear", "knn")  # which ask for nothing without a class


@pytest.mark.parametrize("name", ["sampled_linear", "linear", "random_ridge"])
def test_a_seed_that_no_generator_takes_is_refused(name: str, tmp_path: Path) -> None:
    trained(name, "exact").save(tmp_path / "head")
    state, document = read_tensors(tmp_path / "head", "head")
    document["settings"]["seed"] = 10**30
    write_tensors(tmp_path / "head", "head", state, document)
    with pytest.raises(FileFormatError, match="seed must be from 0 to"):
        load_head(tmp_path / "head")
