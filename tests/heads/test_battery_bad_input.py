"""The battery, second part: bad input raises our error, says why, and leaves the head as it was."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from streams import H, assert_same_bits, blobs, every_head, make_head, snapshot, trained

from lastlayer.catalogue.head_cards import card_of, split_name
from lastlayer.core.tensor_files import write_tensors
from lastlayer.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    LabelError,
    LastLayerError,
    MergeError,
    MissingFileError,
    NotLearnedError,
    OptionError,
    ShapeError,
    UnknownNameError,
    UnsupportedError,
)
from lastlayer.heads import load_head
from lastlayer.layers import LAYERS

Z, Y = blobs()


def spoiled(value: float) -> torch.Tensor:
    z = Z.clone()
    z[3, 1] = value
    return z


BAD_BATCHES: dict[str, tuple[Any, Any, type[LastLayerError], str]] = {
    "NaN": (spoiled(torch.nan), Y, DataError, "features must be finite, got NaN.* 1 of 60 rows"),
    "infinite": (spoiled(torch.inf), Y, DataError, "features must be finite, got .*infinity"),
    "minus infinite": (spoiled(-torch.inf), Y, DataError, "features must be finite"),
    "too wide": (Z.repeat(1, 2), Y, ShapeError, r"features must have 4 columns, got 8"),
    "one vector": (Z[0], Y[:1], ShapeError, r"features must be \(n, 4\), got \(4,\)"),
    "integer features": (
        Z.long(),
        Y,
        DataError,
        "must be a floating-point tensor, got torch.int64",
    ),
    "an array": (Z.numpy(), Y, DataError, "features must be .*tensor, got a.* ndarray"),
    "float labels": (Z, Y.float(), LabelError, "labels must be .*integer.*, got torch.float32"),
    "bool labels": (Z, Y > 0, LabelError, "labels must be .*integer.*, got torch.bool"),
    "a list of labels": (Z, Y.tolist(), LabelError, "labels must be .*tensor, got .*list"),
    "too few labels": (Z, Y[:-1], ShapeError, r"labels must be \(60,\), .*, got \(59,\)"),
    "a column of labels": (Z, Y[:, None], ShapeError, r"labels must be \(60,\), .*, got \(60, 1\)"),
    "a negative label": (Z, Y - 1, LabelError, "labels must be at least 0, got -1"),
    "new classes, bad rows": (spoiled(torch.nan), Y + 7, DataError, "features must be finite"),
}


@every_head
def test_bad_batches_are_refused(name: str, preset: str) -> None:
    for head in (make_head(name, H, preset=preset), trained(name, preset)):
        before = snapshot(head)
        for case, (z, y, error, message) in BAD_BATCHES.items():
            with pytest.raises(error, match=message):
                head.observe(z, y)
            assert issubclass(error, ValueError), case
            assert_same_bits(snapshot(head), before)


@every_head
def test_bad_queries_are_refused(name: str, preset: str) -> None:
    head = trained(name, preset)
    before = snapshot(head)
    expected = head(Z)
    for ask in (head, head.predict):
        with pytest.raises(DataError, match="features must be finite, got NaN"):
            ask(spoiled(torch.nan))
        with pytest.raises(ShapeError, match=r"features must have 4 columns, got 3"):
            ask(Z[:, :3])
    assert_same_bits(snapshot(head), before)
    assert torch.equal(head(Z), expected)


@every_head
def test_predicting_before_learning_is_refused(name: str, preset: str) -> None:
    for n_classes in (0, 3):
        head = make_head(name, H, n_classes, preset=preset)
        for ask in (head, head.predict):
            with pytest.raises(NotLearnedError, match=r"learned nothing yet: call observe"):
                ask(Z)
        assert issubclass(NotLearnedError, RuntimeError)


@every_head
def test_other_heads_cannot_be_merged(name: str, preset: str) -> None:
    head = trained(name, preset)
    other_preset = "paper" if preset == "exact" else "exact"
    other_kind = "mean" if name != "mean" else "median"
    before = snapshot(head)
    others = [make_head(name, H + 1, preset=preset), make_head(other_kind, H, preset=preset)]
    if card_of(name).in_paper:  # the others have no presets
        others.append(make_head(name, H, preset=other_preset))
    for other in others:
        with pytest.raises(MergeError, match=r"two .*heads must .* to be merged, (but|got) "):
            head.merge(other)
    with pytest.raises(ArgumentError, match="other must be a head, got an object"):
        head.merge(object())
    assert_same_bits(snapshot(head), before)


def test_other_layers_cannot_be_merged() -> None:
    one, other = make_head("weight_norm", H), make_head("cosine", H)
    with pytest.raises((MergeError, UnsupportedError)):
        one.merge(other)


@every_head
def test_an_unknown_option_is_refused(name: str, preset: str) -> None:
    with pytest.raises(OptionError, match=rf"'{split_name(name)[0]}' has no option 'depth'"):
        make_head(name, H, preset=preset, depth=3)


CALLS: dict[str, tuple[Callable[[], object], type[LastLayerError], str]] = {
    "name": (lambda: make_head("sldaa", H), UnknownNameError, "did you mean 'slda'"),
    "mask": (lambda: make_head("cosine+singel", H), UnknownNameError, "did you mean 'single'"),
    "mask beside": (lambda: make_head("cosine", H, mask="x"), UnknownNameError, "unknown mask 'x'"),
    "two masks": (lambda: make_head("cosine+single", H, mask="group"), OptionError, "one mask"),
    "preset": (lambda: make_head("mean", H, preset="papr"), OptionError, "'exact' or 'paper'"),
    "no features": (lambda: make_head("mean", 0), OptionError, "at least 1, got 0"),
    "classes": (lambda: make_head("mean", H, -1), OptionError, "from 0 to 1000000, got -1"),
    "lr": (lambda: make_head("linear", H, lr=0.0), OptionError, "above 0, got 0.0"),
    "lr NaN": (lambda: make_head("linear", H, lr=float("nan")), OptionError, "got nan"),
    "scale": (lambda: make_head("linear", H, scale=2.0), OptionError, "'cosine' only"),
    "shrinkage": (lambda: make_head("slda", H, shrinkage=1.5), OptionError, "got 1.5"),
    "prior": (lambda: make_head("slda", H, prior="flat"), OptionError, "got 'flat'"),
    "fixed by paper": (
        lambda: make_head("slda", H, preset="paper", shrinkage=0.1),
        OptionError,
        "use preset 'exact'",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_bad_settings_are_refused(case: str) -> None:
    call, error, message = CALLS[case]
    with pytest.raises(error, match=re.escape(message)):
        call()
    assert issubclass(error, ValueError)


@pytest.mark.parametrize("name", ["mean", "median", "slda", "knn"])
@pytest.mark.parametrize("mask", ["single", "group"])
def test_a_mask_needs_a_gradient(name: str, mask: str) -> None:
    assert name not in LAYERS
    for call in (lambda: make_head(f"{name}+{mask}", H), lambda: make_head(name, H, mask=mask)):
        with pytest.raises(OptionError, match=rf"'{name}' takes no mask.*got '{mask}'"):
            call()


@every_head
def test_a_damaged_file_is_refused(name: str, preset: str, tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    trained(name, preset).save(path)
    whole = path.read_bytes()
    for size in (0, 5, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(FileFormatError, match=r"expected|truncated"):
            load_head(path)
    for position in (len(whole) - 1, whole.index(b"in_features")):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(FileFormatError, match=r"altered"):
            load_head(path)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"not a head, but long enough to be one" * 10)
    with pytest.raises(FileFormatError, match=r"expected a safetensors file"):
        load_head(path)
    write_tensors(path, "features", {"z": Z}, {})
    with pytest.raises(FileFormatError, match=r"expected a lastlayer head file.*holds features"):
        load_head(path)
    assert issubclass(FileFormatError, ValueError)
    with pytest.raises(MissingFileError, match=r"no such file"):
        load_head(tmp_path / "nowhere")
    assert issubclass(MissingFileError, FileNotFoundError)


HOSTILE: dict[str, Any] = {
    "sparse": Z.to_sparse(),
    "meta": Z.to("meta"),
    "float8": Z.to(torch.float8_e4m3fn),
    "complex": torch.complex(Z, Z),
    "large": Z.double() * 1e150,
    "none": None,
    "a list": Z.tolist(),
}


@every_head
def test_odd_tensors_are_refused(name: str, preset: str) -> None:
    head = trained(name, preset)
    before = snapshot(head)
    for z in HOSTILE.values():
        for ask in (head, head.predict, lambda z: head.observe(z, Y)):
            with pytest.raises(DataError, match="must"):
                ask(z)
        assert_same_bits(snapshot(head), before)
    for y in (Y.to_sparse(), Y.to("meta"), None):
        with pytest.raises(LabelError, match="labels must"):
            head.observe(Z, y)
    assert_same_bits(snapshot(head), before)


WRONG_TYPES: dict[str, Callable[[], object]] = {
    "a name": lambda: make_head(3, H),
    "no name": lambda: make_head(None, H),
    "a mask": lambda: make_head("cosine", H, mask=3),
    "a size": lambda: make_head("mean", "4"),
    "half a size": lambda: make_head("mean", 4.5),
    "a bool": lambda: make_head("mean", True),
    "classes": lambda: make_head("mean", H, None),
    "k": lambda: make_head("knn", H, k="5"),
    "budget": lambda: make_head("knn", H, budget=1.5),
    "seed": lambda: make_head("knn", H, seed="a"),
    "keep": lambda: make_head("knn", H, keep=3),
    "gradient seed": lambda: make_head("linear", H, seed=None),
    "lr": lambda: make_head("linear", H, lr="fast"),
    "scale": lambda: make_head("cosine", H, scale="large"),
    "a path": lambda: load_head(3),
    "a path to save": lambda: trained("mean", "exact").save(None),
    "a state": lambda: trained("mean", "exact").load_state_dict(None),
}


@pytest.mark.parametrize("case", WRONG_TYPES)
def test_wrong_types_are_a_type_error(case: str) -> None:
    with pytest.raises(TypeError, match=r"[Ee]xpected|must be"):
        WRONG_TYPES[case]()
