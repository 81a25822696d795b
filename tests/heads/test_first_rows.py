"""First rows: another model's are noticed, new classes and other data of the same one are not."""

import re

import pytest
import torch
from torch import Tensor

import lastlayer as ll
from lastlayer.heads.first_rows import ENOUGH, TO_BEGIN, Directions, FirstRows, Moments

H, CLASSES = 16, 8
TELLING = ("slda", "ridge", "qda", "knn", "median", "random_ridge", "random_slda")
SETTINGS: dict[str, dict[str, object]] = {
    "random_ridge": {"width": 200},
    "random_slda": {"width": 200},
}


def features(
    n: int, seed: int, model: int = 0, classes: range = range(CLASSES)
) -> tuple[Tensor, Tensor]:
    """Rows of a made-up model: its directions and how much they vary are its own."""
    own = torch.Generator().manual_seed(100 + model)
    mixing, _ = torch.linalg.qr(torch.randn(H, H, generator=own, dtype=torch.float64))
    deviations = torch.logspace(0.5, -1.0, H, dtype=torch.float64)
    centres = torch.randn(CLASSES, H, generator=own, dtype=torch.float64) * deviations
    random = torch.Generator().manual_seed(seed)
    y = torch.tensor(classes)[torch.randint(len(classes), (n,), generator=random)]
    rows = torch.randn(n, H, generator=random, dtype=torch.float64) * deviations
    return (rows + centres[y]) @ mixing + 2, y


def head_of(name: str, classes: range = range(CLASSES), n: int = 2000) -> ll.heads.Head:
    head = ll.make_head(name, in_features=H, **SETTINGS.get(name, {})).double()  # type: ignore[arg-type]
    head.observe(*features(n, 0, classes=classes))
    return head


@pytest.mark.parametrize("name", TELLING)
def test_rows_of_another_model_are_noticed_and_of_the_same_are_not(name: str) -> None:
    head = head_of(name, range(4))
    same = [features(40, 1, classes=range(4)), features(40, 2, classes=range(1))]
    drifted = [features(40, 3, classes=range(4, 8))]  # classes that it has never seen
    for z, _ in same + drifted:
        assert FirstRows().see(head, z) == ""
    for seed in range(1, 4):
        assert "along other directions" in FirstRows().see(head, features(40, 4, model=seed)[0])


@pytest.mark.parametrize("name", ["slda", "mean", "knn"])
def test_rows_of_another_scale_are_noticed(name: str) -> None:
    head, (z, _) = head_of(name), features(40, 1)
    assert re.search(r"have 0\.0001\d? times the variance", FirstRows().see(head, z / 100))
    assert re.search(r"have [\d.]+e\+0[345] times the variance", FirstRows().see(head, 100 * z))


def test_a_few_strange_rows_say_nothing_of_the_others() -> None:
    z, _ = features(40, 1)
    z[:9] += 1000
    assert FirstRows().see(head_of("slda"), z) == ""


def test_rows_are_gathered_until_there_are_enough_and_told_of_once() -> None:
    head, (z, _), first = head_of("slda"), features(60, 1, model=1), FirstRows()
    copies = [first.see(head, z[:1]) for _ in range(2 * ENOUGH)]
    said = [first.see(head, row[None]) for row in z]
    assert not any(copies)
    assert [place for place, one in enumerate(said) if one] == [ENOUGH - 1]


@pytest.mark.parametrize("name", ["linear", "cosine", "weight_norm"])
def test_a_head_that_keeps_nothing_that_tells_says_nothing(name: str) -> None:
    assert FirstRows().see(head_of(name), features(40, 1, model=1)[0]) == ""


def test_a_head_that_knows_too_little_tries_again_if_asked_to() -> None:
    z, y = features(2000, 0)
    other, _ = features(40, 1, model=1)
    for again in (True, False):
        first, head = FirstRows(again), ll.make_head("slda", in_features=H).double()
        head.observe(z[:5], y[:5])
        assert first.see(head, other) == ""
        head.observe(z, y)
        assert bool(first.see(head, other)) == again


@pytest.mark.parametrize(("few", "each"), [(2, 80), (4, 80), (2, 300), (8, 80), (2, 500)])
def test_new_classes_are_not_taken_for_other_features_however_few_were_learned(
    few: int, each: int
) -> None:
    """After 160 rows two draws of three had been, and after 320 one of five."""
    data = ll.load_features("cifar100", label="fine").train
    z, y = data.z.double(), data.y
    random, looked, wrong = torch.Generator().manual_seed(0), 0, 0
    for _ in range(10):
        order = torch.randperm(100, generator=random)
        rows = torch.cat([(y == c).nonzero().flatten()[:each] for c in order[:few]])
        head = ll.make_head("slda", in_features=64).double()
        head.observe(z[rows], order.argsort()[y[rows]])
        asked = torch.cat([(y == c).nonzero().flatten()[:25] for c in order[few : few + 2]])
        looked += Directions.of(head) is not None
        wrong += bool(FirstRows().see(head, z[asked]))
    assert wrong == 0
    assert looked == (10 if few * each >= TO_BEGIN else 0)


def test_moments_of_rows_are_those_of_the_statistics() -> None:
    z, y = features(300, 0)
    head, columns = head_of("slda", n=1), torch.tensor([1, 5, 7])
    head = ll.make_head("slda", in_features=H).double()
    head.observe(z, y)
    kept, own = head._moments(columns), Moments.of(z[:, columns], y, CLASSES)
    assert kept is not None
    for one, other in zip(kept, own, strict=True):
        assert torch.allclose(one.double(), other.double())
