"""The readers of Core50 and CUB-200-2011 on trees of the documented layout."""

from pathlib import Path

import pytest
import torch
from tests import pictures

from lastlayer.errors import (
    DataError,
    FileFormatError,
    MissingFileError,
    OptionError,
    UnknownNameError,
)
from lastlayer.extraction.datasets.images import Images, ImageSet
from lastlayer.extraction.datasets.readers import DATASETS, read_images


@pytest.fixture(scope="module")
def core50(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures.core50(tmp_path_factory.mktemp("core50"), frames=2)


@pytest.mark.parametrize("inside", [True, False])
def test_core50_has_the_labels_of_three_scenarios(core50: Path, inside: bool) -> None:
    data = read_images("core50", core50 / "core50_128x128" if inside else core50)
    assert (len(data.train), len(data.test)) == (8 * 50 * 2, 3 * 50 * 2)
    assert list(data.names) == ["object", "category", "session"]
    assert [len(names) for names in data.names.values()] == [50, 10, 11]
    for images in (data.train, data.test):
        for row, path in enumerate(images.x):
            session, number = int(path.parts[-3][1:]), int(path.parts[-2][1:])
            found = {column: int(labels[row]) for column, labels in images.labels.items()}
            category = (number - 1) // 5
            assert found == {"object": number - 1, "category": category, "session": session - 1}
    assert data.test.labels["session"].unique().tolist() == [2, 6, 9]
    assert data.names["category"][0] == "plug adapters"


def test_core50_lists_frames_as_they_were_filmed(core50: Path) -> None:
    names = [path.name for path in read_images("core50", core50).train.x]
    assert names[:4] == ["C_01_01_000.png", "C_01_01_001.png", "C_01_02_000.png", "C_01_02_001.png"]
    assert names == sorted(names)


def test_thinning_is_seeded_and_leaves_the_test_set_whole(core50: Path) -> None:
    whole, thin = read_images("core50", core50), read_images("core50", core50, thin=8, seed=1)
    assert len(thin.train) == len(whole.train) // 8
    assert len(thin.test) == len(whole.test)
    again, other = (read_images("core50", core50, thin=8, seed=seed) for seed in (1, 2))
    assert thin.train.x == again.train.x != other.train.x
    rows = [whole.train.x.index(path) for path in thin.train.x]  # type: ignore[union-attr]
    assert rows == sorted(rows)
    for column, labels in thin.train.labels.items():
        assert torch.equal(labels, whole.train.labels[column][rows])


def test_core50_with_a_wrong_layout(tmp_path: Path) -> None:
    with pytest.raises(
        MissingFileError, match=r"no .*s1/o1: .*; unpack core50_128x128.zip from https"
    ):
        read_images("core50", tmp_path)
    pictures.core50(tmp_path, objects=range(1, 50))
    with pytest.raises(MissingFileError, match=r"no .*s1/o50: .*s1 to s11 with o1 to o50 in each"):
        read_images("core50", tmp_path)
    pictures.core50(tmp_path, objects=[50])
    place = tmp_path / "core50_128x128" / "s2" / "o7"
    (place / "C_02_07_000.png").rename(place / "C_02_08_000.png")
    with pytest.raises(
        FileFormatError,
        match=r"o7 must hold frames of session 2 and object 7, .*C_02_08_000.png is",
    ):
        read_images("core50", tmp_path)
    (place / "C_02_08_000.png").rename(place / "frame.png")
    with pytest.raises(FileFormatError, match=r"no frames such as C_02_07_000.png in .*o7"):
        read_images("core50", tmp_path)


@pytest.mark.parametrize("inside", [True, False])
def test_cub200_is_split_officially(tmp_path: Path, inside: bool) -> None:
    root = pictures.cub200(tmp_path)
    data = read_images("cub200", root / "CUB_200_2011" if inside else root)
    assert [path.name for path in data.test.x] == [f"Bird_{n:04}.jpg" for n in (0, 3, 6)]
    assert data.train.labels["class"].tolist() == [0, 0, 1, 1, 2, 2]
    assert data.names == {"class": ("001.Bird_1", "002.Bird_2", "003.Bird_3")}


@pytest.mark.parametrize(
    ("file", "content", "error", "message"),
    [
        ("images.txt", None, MissingFileError, r"no .*images.txt: unpack CUB_200_2011.tgz from"),
        (
            "images.txt",
            "1 002.Bird_2/a.jpg",
            MissingFileError,
            r"^1 of the \d+ images of images.txt are missing, the first is .*a\.jpg",
        ),
        ("images.txt", "", FileFormatError, "one line for each number"),
        ("classes.txt", "1", FileFormatError, "a number and a word"),
        ("image_class_labels.txt", "1 1\n2 1\n", FileFormatError, "for every image: '3'"),
        (
            "image_class_labels.txt",
            "".join(f"{n} 9\n" for n in range(1, 10)),
            FileFormatError,
            "got .9.",
        ),
        ("train_test_split.txt", "1 0\n1 1\n", FileFormatError, "one line for each number"),
    ],
)
def test_cub200_with_a_wrong_layout(
    tmp_path: Path, file: str, content: str | None, error: type, message: str
) -> None:
    path = pictures.cub200(tmp_path) / "CUB_200_2011" / file
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(error, match=message):
        read_images("cub200", tmp_path)


@pytest.mark.parametrize("name", DATASETS)
def test_a_missing_folder_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingFileError, match=r"there is no folder .*nowhere with the files"):
        read_images(name, tmp_path / "nowhere")


def test_names_and_options(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cub200'"):
        read_images("cub20", tmp_path)
    with pytest.raises(OptionError, match="cub200 has a test set of its own"):
        read_images("cub200", pictures.cub200(tmp_path), test=0.2)


def test_a_split_without_images_is_refused() -> None:
    some, none = (Images([Path("a.jpg")] * n, {"class": torch.zeros(n).long()}) for n in (1, 0))
    with pytest.raises(DataError, match="the data set 'mine' must have test images, got none"):
        ImageSet("mine", some, none, {"class": ("a",)})


def test_the_digest_names_files_and_labels_but_not_where_they_lie(tmp_path: Path) -> None:
    one, two = (read_images("cub200", pictures.cub200(tmp_path / name)) for name in "ab")
    assert one.digest == two.digest
    assert one.digest != read_images("cub200", tmp_path / "a", thin=2).digest
    other = pictures.cub200(tmp_path / "c") / "CUB_200_2011" / "image_class_labels.txt"
    other.write_text(other.read_text().replace("9 3", "9 1"))
    assert one.digest != read_images("cub200", tmp_path / "c").digest
