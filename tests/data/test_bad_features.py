"""Features refuse wrong types and odd tensors in their own words, and keep names printable."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lastlayer import Features, FeatureSet, extract, load_features, read_images
from lastlayer.core.tensor_files import write_tensors
from lastlayer.data import Origin
from lastlayer.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    LabelError,
    LastLayerError,
    OptionError,
)
from lastlayer.extraction import Images, ImageSet

Z = torch.arange(8.0).reshape(4, 2)
Y = torch.tensor([0, 1, 0, 1])
ODD = {
    "sparse": Z.to_sparse(),
    "float8": Z.to(torch.float8_e4m3fn),
    "complex": Z + 1j,
    "meta": Z.to("meta"),
    "large": Z.double() * 1e150,
    "bool": Z > 1,
}


@pytest.mark.parametrize("z", ODD.values(), ids=ODD)
def test_odd_tensors(z: torch.Tensor) -> None:
    with pytest.raises(DataError, match=r"expected features|features must"):
        Features.from_arrays(z, Y, test=0.5)
    with pytest.raises(DataError, match=r"expected features|features must"):
        FeatureSet(z, {"y": Y})


@pytest.mark.parametrize(
    "y", [Y.to_sparse(), Y.to("meta"), Y.to(torch.float8_e4m3fn), Y + 1j, Y.bfloat16()]
)
def test_odd_labels(y: torch.Tensor) -> None:
    with pytest.raises((DataError, LabelError), match="labels 'y'"):
        Features.from_arrays(Z, y, test=0.5)
    with pytest.raises((DataError, LabelError), match="labels 'y'"):
        FeatureSet(Z, {"y": y})


class Hostile:
    """What raises when it is made into an array, compared or written."""

    def __array__(self, *_: object) -> None:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("wrong", [None, "z", 3, {}, [[1], [1, 2]], Hostile(), [Hostile()] * 4])
def test_what_is_no_array(wrong: Any) -> None:
    with pytest.raises(LastLayerError, match=r"must|expected|needs"):
        Features.from_arrays(wrong, Y, test=0.5)
    with pytest.raises(LastLayerError, match=r"must|expected|needs"):
        Features.from_arrays(Z, wrong, test=0.5)


def test_masked_values_are_not_read() -> None:
    masked = np.ma.masked_array(Z.numpy(), mask=Z.numpy() > 3)
    with pytest.raises(DataError, match="features must have all values, but some are masked"):
        Features.from_arrays(masked, Y, test=0.5)


@pytest.mark.parametrize("seed", [None, "0", 1.5])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(ArgumentError, match="a seed must be an integer"):
        Features.from_arrays(Z, Y, test=0.5, seed=seed)


@pytest.mark.parametrize("further", [None, 3, "session", [1, 2]])
def test_the_columns_of_test_are_a_table(further: Any) -> None:
    with pytest.raises(ArgumentError, match=r"the columns of test must be a table"):
        Features.from_arrays(Z, Y, test=(Z, Y, further))


@pytest.mark.parametrize("name", [None, 3, ["cifar10"], b"cifar10", Path])
def test_features_have_a_name_or_a_path(name: Any) -> None:
    with pytest.raises(ArgumentError, match="must be the name of a feature set or the path"):
        load_features(name)
    with pytest.raises(LastLayerError):
        load_features("x" * 5000)


@pytest.mark.parametrize("label", [3, ["fine"], b"fine"])
def test_a_label_column_has_a_name(label: Any) -> None:
    with pytest.raises(ArgumentError, match="must be the name of a label column"):
        load_features("cifar100", label=label)


@pytest.mark.parametrize(
    "arguments",
    [(None, {"y": Y}), (Z.numpy(), {"y": Y}), (Z, None), (Z, [Y]), (Z, {"y": [0, 1, 0, 1]}),
     (Z, {3: Y})],
)  # fmt: skip
def test_a_feature_set_of_wrong_types(arguments: tuple[Any, Any]) -> None:
    with pytest.raises(ArgumentError, match="must"):
        FeatureSet(*arguments)


def test_features_of_wrong_types() -> None:
    split, names = FeatureSet(Z, {"y": Y}), {"y": ("a", "b")}
    for wrong in ((None, split, names), (split, Z, names), (split, split, None),
                  (split, split, {"y": "ab"}), (split, split, {"y": (1, 2)}),
                  (split, split, names, "somewhere")):  # fmt: skip
        with pytest.raises(ArgumentError, match="must"):
            Features(*wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="backbone must be text"):
        Origin(backbone=3)  # type: ignore[arg-type]


def test_names_can_be_printed_whoever_gave_them(tmp_path: Path) -> None:
    data = Features.from_arrays(Z, ["owl\n", "emu\x07"] * 2, test=0.5)
    assert data.names["y"] == (r"emu\x07", r"owl\n")
    split = FeatureSet(Z, {"y": Y})
    origin = Origin(dataset="birds\x1b[2J")
    by_hand = Features(split, split, {"y": ("a\0", "a")}, origin)
    assert by_hand.names["y"] == (r"a\x00", "a")
    assert by_hand.origin.dataset == r"birds\x1b[2J"
    by_hand.save(tmp_path / "a.safetensors")
    assert load_features(tmp_path / "a.safetensors").names == by_hand.names


def test_names_in_a_file_of_another_maker_are_printable_too(tmp_path: Path) -> None:
    tensors = {f"{split}.{name}": value for split in ("train", "test")
               for name, value in {"z": Z, "y": Y}.items()}  # fmt: skip
    metadata = {"label": "y", "names": {"y": ["a\x1b", "b"]}, "origin": {}, "fingerprint": "f"}
    path = tmp_path / "a.safetensors"
    write_tensors(path, "features", tensors, metadata)
    assert load_features(path).names["y"] == (r"a\x1b", "b")
    for wrong in ({"names": {"y": "ab"}}, {"names": {"y": [1, 2]}}, {"names": {"y": ["a"]}},
                  {"label": 3}, {"label": "x"}, {"origin": {"dataset": 3}}, {"origin": []},
                  {"origin": {"home": "a"}}, {"fingerprint": None}, {"names": []}):  # fmt: skip
        write_tensors(path, "features", tensors, metadata | wrong)
        with pytest.raises(FileFormatError, match="lacks a part of a features file"):
            load_features(path)
    write_tensors(path, "features", tensors | {"train.y": Y - 1}, metadata)
    with pytest.raises(FileFormatError, match="labels 'y' must be at least 0, got -1"):
        load_features(path)


def test_a_label_column_has_a_name_that_can_be_printed() -> None:
    with pytest.raises(OptionError, match=r"cannot be named 'day\\n'"):
        FeatureSet(Z, {"day\n": Y})


@pytest.mark.parametrize(
    "options",
    [{"root": None}, {"root": 3}, {"name": None}, {"thin": "2"}, {"thin": 1.5}, {"test": "0.2"},
     {"seed": None}, {"root": "a\0b"}, {"root": "x" * 5000}],
)  # fmt: skip
def test_images_of_wrong_types(tmp_path: Path, options: dict[str, Any]) -> None:
    for bird in ("emu", "owl"):
        for number in range(3):
            (tmp_path / bird).mkdir(exist_ok=True)
            (tmp_path / bird / f"{number}.png").touch()
    right = {"name": "folder", "root": tmp_path, "test": 0.5, "seed": 0, "thin": 2}
    assert len(read_images(**right)) == 5  # type: ignore[arg-type]
    with pytest.raises(LastLayerError, match="must"):
        read_images(**(right | options))


def test_an_extraction_of_wrong_types(tmp_path: Path) -> None:
    some = Images(torch.zeros(2, 3, 8, 8).byte(), {"class": torch.tensor([0, 1])})
    images = ImageSet("toy", some, some, {"class": ("a", "b")})
    right = {"images": images, "network": torch.nn.Flatten(), "transform": lambda x: x / 255}
    right |= {"out": tmp_path / "a.safetensors", "workers": 0}
    for name, wrong in (
        ("images", None), ("network", len), ("transform", 3), ("out", None), ("origin", "here"),
        ("dtype", None), ("batch_size", "8"), ("device", 0), ("workers", 1.5), ("workers", 10**9),
        ("progress", 3), ("broken", None),
    ):  # fmt: skip
        with pytest.raises((ArgumentError, OptionError), match="must"):
            extract(**(right | {name: wrong}))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
    with pytest.raises(LastLayerError, match=r"'class' must have 2 values, .* got shape"):
        Images(some.x, {"class": torch.tensor([0])})
