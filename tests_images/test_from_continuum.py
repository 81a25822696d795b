"""The scenarios of the paper are those of Continuum, which its authors used: row for row."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from continuum import ClassIncremental, ContinualScenario
from continuum.datasets import CUB200, Core50, H5Dataset, InMemoryDataset
from continuum.datasets.cifar100 import cifar100_coarse_labels, get_lifelong_cifar100
from continuum.scenarios import create_subscenario
from continuum.tasks import TaskType

import lastlayer as ll
import pictures
from lastlayer.data import Features, FeatureSet
from lastlayer.extraction import ImageSet
from lastlayer.scenarios import Scenario, from_continuum, task_order

SEEDS = range(8)


def features_of(images: ImageSet) -> Features:
    """Data with the labels of images; what the features are does not matter here."""
    splits = (
        FeatureSet(torch.zeros(len(part), 1), part.labels) for part in (images.train, images.test)
    )
    return Features(*splits, images.names)


def rows_as_data(y: Any, t: Any = None) -> InMemoryDataset:
    """Row numbers as data, which stay with their samples whatever Continuum does to them."""
    return InMemoryDataset(
        np.arange(len(y)), np.asarray(y), None if t is None else np.asarray(t), TaskType.TENSOR
    )


def incremental(train: Any, test: Any, n_tasks: int) -> tuple[Any, Any]:
    parts = (ClassIncremental(rows_as_data(y), nb_tasks=n_tasks) for y in (train, test))
    return tuple(parts)  # type: ignore[return-value]


def reordered(scenarios: tuple[Any, Any], seed: int) -> Scenario:
    """The order of the study's code: create_subscenario with a permutation of the tasks."""
    train, test = scenarios
    order = np.array(task_order(len(train), seed))
    if len(test) == len(train):
        test = create_subscenario(test, order)
    return from_continuum(create_subscenario(train, order), test)


def assert_same(ours: Scenario, theirs: Scenario) -> None:
    assert ours.n_classes == theirs.n_classes
    assert len(ours.tasks) == len(theirs.tasks)
    assert all(map(torch.equal, ours.tasks, theirs.tasks))
    assert (ours.test_tasks is None) == (theirs.test_tasks is None)
    assert all(map(torch.equal, ours.test_tasks or (), theirs.test_tasks or ()))


@pytest.fixture(scope="module")
def core50(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures.core50(tmp_path_factory.mktemp("core50"))


@pytest.fixture(scope="module")
def cub200(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures.cub200(tmp_path_factory.mktemp("cub200"), n_classes=200)


def core50_of_continuum(root: Path, scenario: str, classification: str) -> list[Any]:
    """Its own reader's x, y and t, of the training and of the test sessions."""
    sessions = [s for s in range(1, 12) if s not in (3, 7, 10)]
    train = [path.stem for s in sessions for path in root.glob(f"core50_128x128/s{s}/*/*.png")]
    return [
        Core50(
            str(root), is_train, train_image_ids=train, download=False,
            scenario=scenario, classification=classification,
        ).get_data()
        for is_train in (True, False)
    ]  # fmt: skip


def test_its_reader_of_core50_finds_what_ours_finds(core50: Path) -> None:
    ours = ll.read_images("core50", core50)
    theirs = core50_of_continuum(core50, "domains", "object")
    for part, (x, y, _) in zip((ours.train, ours.test), theirs, strict=True):
        assert [str(path) for path in part.x] == x.tolist()
        assert part.labels["object"].tolist() == y.tolist()


def test_its_reader_of_cub200_finds_what_ours_finds(cub200: Path) -> None:
    ours = ll.read_images("cub200", cub200)
    for part, is_train in ((ours.train, True), (ours.test, False)):
        x, y, _ = CUB200(str(cub200), is_train, download=False).get_data()
        assert [str(path) for path in part.x] == x.tolist()
        assert part.labels["class"].tolist() == y.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_cifar10(seed: int) -> None:
    data = ll.load_features("cifar10")
    theirs = incremental(data.train.y, data.test.y, 5)
    assert_same(ll.make_scenario("cifar10", data, order=seed), reordered(theirs, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_cub200(cub200: Path, seed: int) -> None:
    data = features_of(ll.read_images("cub200", cub200))
    y = (CUB200(str(cub200), part, download=False).get_data()[1] for part in (True, False))
    theirs = incremental(*y, 10)
    assert_same(ll.make_scenario("cub200", data, order=seed), reordered(theirs, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_core50(core50: Path, seed: int) -> None:
    data = features_of(ll.read_images("core50", core50))
    y = (part[1] for part in core50_of_continuum(core50, "classes", "object"))
    theirs = incremental(*y, 10)
    assert_same(ll.make_scenario("core50", data, order=seed), reordered(theirs, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_core10_lifelong(core50: Path, seed: int) -> None:
    data = features_of(ll.read_images("core50", core50))
    parts = core50_of_continuum(core50, "domains", "category")
    theirs = tuple(ContinualScenario(rows_as_data(y, t)) for _, y, t in parts)
    assert_same(ll.make_scenario("core10_lifelong", data, order=seed), reordered(theirs, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_core10_mix(core50: Path, seed: int) -> None:
    data = features_of(ll.read_images("core50", core50))
    train, test = core50_of_continuum(core50, "objects", "category")
    by_object = core50_of_continuum(core50, "objects", "object")[1][1]
    theirs = tuple(
        ContinualScenario(rows_as_data(y, t))
        for y, t in ((train[1], train[2]), (test[1], by_object))
    )
    assert_same(ll.make_scenario("core10_mix", data, order=seed), reordered(theirs, seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_cifar100_lifelong(seed: int) -> None:
    data = ll.load_features("cifar100")
    theirs = []
    for part in (data.train, data.test):
        fine = part.labels["fine"].numpy()
        coarse = cifar100_coarse_labels[fine]
        assert np.array_equal(coarse, part.labels["coarse"])
        theirs.append(ContinualScenario(rows_as_data(coarse, get_lifelong_cifar100(fine))))
    ours = ll.make_scenario("cifar100_lifelong", data, order=seed)
    assert_same(ours, reordered(tuple(theirs), seed))


@pytest.mark.parametrize("seed", [0, 3])
def test_features_in_an_h5_file_keep_their_rows(tmp_path: Path, seed: int) -> None:
    """The study's own way: features of a whole scenario in one file."""
    y = np.random.default_rng(0).integers(0, 6, 40)
    x = np.random.default_rng(1).random((40, 3))
    file = H5Dataset(x, y, y // 2, data_path=str(tmp_path / "z.hdf5"))
    scenario = ContinualScenario(file)
    data = Features.from_arrays(x, y, test=(x, y))
    ours = ll.scenarios.incremental(data, tasks=3, order=seed)
    assert_same(ours, reordered((scenario, scenario), seed))


def test_data_without_row_numbers_count_from_the_first() -> None:
    y = np.arange(12) % 4
    scenario = ClassIncremental(InMemoryDataset(np.zeros((12, 8, 8, 3), np.uint8), y), increment=2)
    data = Features.from_arrays(np.zeros((12, 1)), y, test=(np.zeros((12, 1)), y))
    assert_same(ll.scenarios.incremental(data, tasks=2), from_continuum(scenario, scenario))
