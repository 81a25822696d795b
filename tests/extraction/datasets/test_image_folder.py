"""Any folder of images: classes, domains, a split that is given or drawn."""

from pathlib import Path

import pytest
from tests.pictures import tree

from lastlayer.errors import FileFormatError, LastLayerError, OptionError
from lastlayer.extraction.datasets.images import Images, ImageSet
from lastlayer.extraction.datasets.readers import read_images


def labelled(images: Images, data: ImageSet) -> list[tuple[str, ...]]:
    """The names of an image's labels, then of its file."""
    columns = [[data.names[c][i] for i in images.labels[c].tolist()] for c in data.names]
    names = [path.name for path in images.x]
    return sorted(zip(*columns, names, strict=True))


def test_classes(tmp_path: Path) -> None:
    tree(tmp_path, *(f"{animal}/{n}.jpg" for animal in ("emu", "owl") for n in range(5)))
    data = read_images("folder", tmp_path, test=0.4)
    assert data.names == {"class": ("emu", "owl")}
    assert repr(data) == "ImageSet(folder: 6 train, 4 test, labels: class (2))"
    assert data.train.labels["class"].bincount().tolist() == [3, 3]
    everything = labelled(data.train, data) + labelled(data.test, data)
    assert sorted(everything) == [(a, f"{n}.jpg") for a in ("emu", "owl") for n in range(5)]


def test_domains_of_classes(tmp_path: Path) -> None:
    tree(tmp_path, *(f"{d}/{c}/{n}.png" for d in ("day", "night") for c in "ab" for n in range(2)))
    data = read_images("folder", tmp_path, test=0.5)
    assert data.names == {"class": ("a", "b"), "domain": ("day", "night")}
    everything = labelled(data.train, data) + labelled(data.test, data)
    expected = [(c, d, f"{n}.png") for c in "ab" for d in ("day", "night") for n in range(2)]
    assert sorted(everything) == sorted(expected)


@pytest.mark.parametrize("held_out", ["test", "val"])
@pytest.mark.parametrize("domain", ["", "day/"])
def test_a_split_that_is_given(tmp_path: Path, held_out: str, domain: str) -> None:
    tree(tmp_path, f"train/{domain}owl/1.jpg", f"train/{domain}emu/2.jpg")
    tree(tmp_path, f"{held_out}/{domain}owl/3.jpg", f"{held_out}/{domain}kea/4.jpg")
    data = read_images("folder", tmp_path)
    assert data.names["class"] == ("emu", "kea", "owl")
    assert [names[0] for names in labelled(data.train, data)] == ["emu", "owl"]
    assert [names[-1] for names in labelled(data.test, data)] == ["4.jpg", "3.jpg"]
    assert ("domain" in data.names) == bool(domain)
    with pytest.raises(OptionError, match="has a test set of its own"):
        read_images("folder", tmp_path, test=0.2)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    tree(tmp_path, *(f"{c}/{n}.jpg" for c in ("bus", "train", "test") for n in range(2)))
    assert read_images("folder", tmp_path).names == {"class": ("bus", "test", "train")}


def test_the_draw_is_seeded(tmp_path: Path) -> None:
    tree(tmp_path, *(f"owl/{n}.jpg" for n in range(10)))
    draws = [read_images("folder", tmp_path, seed=seed).test.x for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    assert len(draws[0]) == 2


def test_what_is_no_image_is_left_alone(tmp_path: Path) -> None:
    names = (
        "owl/1.JPG",
        "owl/2.jpeg",
        "owl/notes.txt",
        "owl/._1.jpg",
        ".cache/3.jpg",
        "owl/Thumbs.db",
    )
    tree(tmp_path, "emu/1.png", "emu/2.png", *names)
    (tmp_path / "empty").mkdir()
    data = read_images("folder", tmp_path, test=0.5)
    assert [name for _, name in labelled(data.train, data) + labelled(data.test, data)] != []
    assert len(data) == 4
    assert data.names == {"class": ("emu", "owl")}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "there are no images below .*; the layout is ROOT/class/image.jpg or"),
        (["1.jpg", "2.jpg"], r"images must lie as ROOT/class/image.jpg or .*, got .*1\.jpg"),
        (["owl/1.jpg", "day/owl/2.jpg"], r"the same everywhere, got .*2\.jpg and .*1\.jpg"),
        (["a/b/c/1.jpg"], r"got .*a/b/c/1\.jpg"),
        (["owl/1.heic", "emu/1.jpg"], r"owl must hold images, but has only files such as 1\.heic"),
        (["train/owl/1.jpg", "test/day/owl/1.jpg"], "the same everywhere"),
        (["train/owl/1.jpg", "test/notes/.txt"], "there are no images below .*test"),
    ],
)
def test_a_wrong_layout(tmp_path: Path, files: list[str], message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        read_images("folder", tree(tmp_path, *files))


def test_too_few_images_to_draw_a_test_set(tmp_path: Path) -> None:
    with pytest.raises(LastLayerError, match="no class has two samples"):
        read_images("folder", tree(tmp_path, "owl/1.jpg", "emu/1.jpg"))
