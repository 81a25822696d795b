"""Extraction: the network takes the released weights, and the features are what it gives."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tests import fake_cifar
from torch.nn.functional import batch_norm, conv2d, relu

from lastlayer import load_features
from lastlayer.cli import main
from lastlayer.core.tensor_files import fingerprint
from lastlayer.data import Features
from lastlayer.errors import FileFormatError, MissingFileError, OptionError, UnknownNameError
from lastlayer.extraction.backbones.by_name import BACKBONES, load_backbone
from lastlayer.extraction.backbones.resnet20 import ResNet20
from lastlayer.extraction.datasets.cifar import read_cifar
from lastlayer.extraction.from_images import extract_named

Extract = Callable[..., Features]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Random weights, batch norm's statistics too."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = ResNet20(100).state_dict()
        for tensor in state.values():
            if tensor.is_floating_point() and tensor.ndim == 1:
                tensor.uniform_(0.5, 1.5)
    torch.save(state, tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path) -> Extract:
    fake_cifar.write(tmp_path, monkeypatch, "cifar100", "python")

    def run(**options: object) -> Features:
        out = tmp_path / "features.safetensors"
        where = ("cifar100", tmp_path, "resnet20-cifar100", out)
        return extract_named(*where, weights=weights, **options)  # type: ignore[arg-type]

    return run


def reference(x: torch.Tensor, state: dict[str, torch.Tensor]) -> torch.Tensor:
    """The same network written flat, from the paper's description."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        parts = ("running_mean", "running_var", "weight", "bias")
        return batch_norm(x, *(state[f"{name}.{part}"] for part in parts))

    x = relu(norm(conv2d(x, state["conv1.weight"], padding=1), "bn1"))
    for stage in (1, 2, 3):
        for block in (0, 1, 2):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            inner = conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            inner = relu(norm(inner, f"{name}.bn1"))
            inner = norm(conv2d(inner, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
            if stride == 2:
                x = conv2d(x, state[f"{name}.downsample.0.weight"], stride=2)
                x = norm(x, f"{name}.downsample.1")
            x = relu(x + inner)
    return x.mean((2, 3))


def test_the_network_has_the_size_of_a_resnet20() -> None:
    # 0.27 million as in the paper, whose shortcuts have no parameters.
    shortcuts = 16 * 32 + 32 * 64 + 2 * (32 + 64)
    assert sum(p.numel() for p in ResNet20(10).parameters()) == 269_722 + shortcuts


def test_features_are_those_of_the_network(run: Extract, weights: Path, tmp_path: Path) -> None:
    data = run(dtype="float32", batch_size=4)
    images = read_cifar("cifar100", tmp_path).train
    mean, std = (0.5071, 0.4865, 0.4409), (0.2009, 0.1984, 0.2023)
    x = (images.x / 255 - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    expected = reference(x, torch.load(weights, weights_only=True))
    assert torch.allclose(data.train.z, expected, rtol=1e-4)
    assert torch.equal(data.train.y, images.labels["fine"])
    assert (data.label, list(data.names), data.in_features) == ("fine", ["fine", "coarse"], 64)


def test_equal_runs_give_equal_bits(run: Extract) -> None:
    assert run().fingerprint == run().fingerprint


def test_half_precision_is_the_rounded_single_one(run: Extract) -> None:
    assert torch.equal(run().test.z, run(dtype="float32").test.z.half())


def test_normalisation_is_an_option(run: Extract) -> None:
    authors, trained = run(), run(normalisation="trained")
    assert authors.origin.normalisation == "authors"
    assert trained.origin.normalisation == "trained"
    assert not torch.equal(authors.train.z, trained.train.z)


def test_the_normalisations_differ_where_the_authors_slipped() -> None:
    white = torch.full((3, 32, 32), 255, dtype=torch.uint8)
    prepare = BACKBONES["resnet20-cifar100"].prepare
    trained = prepare("cifar100")["trained"](white)[:, 0, 0]
    assert trained.tolist() == pytest.approx([1.8444, 2.0027, 2.0250], abs=1e-4)
    assert list(prepare("folder")) == ["trained"]


def test_origin_says_how_it_was_made_without_a_path(run: Extract, tmp_path: Path) -> None:
    origin = run().origin
    assert origin.made == (
        "lastlayer extract cifar100 --root ROOT --backbone resnet20-cifar100 --weights WEIGHTS "
        "--normalisation authors --dtype float16 --out FILE"
    )
    assert str(tmp_path) not in repr(origin)


def test_progress_counts_every_image(run: Extract) -> None:
    seen: list[tuple[int, int]] = []
    run(batch_size=4, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 12), (8, 12), (12, 12)]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"normalisation": "author"}, UnknownNameError, "did you mean 'authors'"),
        ({"dtype": "float64"}, UnknownNameError, "there are: float16, float32"),
        ({"batch_size": 0}, OptionError, "batch size must be at least 1, got 0"),
        ({"workers": -1}, OptionError, "workers must be from 0 to 256, got -1"),
        ({"precision": "mixed", "device": "cpu"}, OptionError, "needs a GPU"),
        ({"precision": "half"}, UnknownNameError, "there are: full, mixed"),
        ({"device": "gpu"}, UnknownNameError, "there are: auto, cpu, cuda"),
        ({"broken": "ignore"}, UnknownNameError, "there are: stop, skip"),
        ({"test": 0.5}, OptionError, "cifar100 has a test set of its own"),
        ({"thin": 0}, OptionError, "thin must be from 1 to 6, got 0"),
    ],
)
def test_bad_options(run: Extract, options: dict[str, object], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        run(**options)


def test_an_unknown_backbone() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'resnet20-cifar10'"):
        load_backbone("resnet20-cifar", None)


def test_weights_that_are_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"are missing: download"):
        load_backbone("resnet20-cifar10", None)
    with pytest.raises(MissingFileError, match=r"weights; it must be the weights of .*; download"):
        load_backbone("resnet20-cifar10", tmp_path / "weights")


def test_weights_that_do_not_fit(weights: Path) -> None:
    with pytest.raises(
        FileFormatError, match=r"weights of resnet20-cifar10 .* do not fit"
    ) as caught:
        load_backbone("resnet20-cifar10", weights)
    assert "2 of another shape (fc.bias (100,) instead of (10,), fc.weight" in str(caught.value)
    assert str(weights) in str(caught.value)
    torch.save({"conv": torch.zeros(1)}, weights)
    missing = r"do not fit: \d+ missing \(bn1.bias, .*, …\), 1 unexpected \(conv\)"
    with pytest.raises(FileFormatError, match=missing):
        load_backbone("resnet20-cifar100", weights)


def test_weights_as_safetensors(weights: Path, tmp_path: Path) -> None:
    state = torch.load(weights, weights_only=True)
    save_file(state, tmp_path / "weights.safetensors")
    network, _ = load_backbone("resnet20-cifar100", tmp_path / "weights.safetensors")
    assert fingerprint(network.state_dict()) == fingerprint(state)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.mkdir, (Path("evil"),)  # type: ignore[return-value]


def test_weights_that_are_none(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"conv1.weight": Evil()}, weights)
    with pytest.raises(FileFormatError, match="PyTorch checkpoint, or not a safe one"):
        load_backbone("resnet20-cifar100", weights)
    assert not (tmp_path / "evil").exists()
    for content in (b"", b"hello", bytes(100), b"PK\x03\x04" + bytes(100)):
        weights.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"neither a \.safetensors file nor"):
            load_backbone("resnet20-cifar100", weights)
    torch.save([1, 2], weights)
    with pytest.raises(FileFormatError, match="must hold a state dict"):
        load_backbone("resnet20-cifar100", weights)


def test_the_backbone_is_frozen(weights: Path) -> None:
    network, _ = load_backbone("resnet20-cifar100", weights)
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: Path, run: Extract
) -> None:
    out = tmp_path / "out.safetensors"
    options = {"--root": tmp_path, "--backbone": "resnet20-cifar100", "--weights": weights}
    options |= {"--out": out, "--dtype": "float32", "--batch-size": 4}
    words = [str(word) for option in options.items() for word in option]
    monkeypatch.setattr(sys, "argv", ["lastlayer", "extract", "cifar100", *words])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert not exit_.value.code
    assert load_features(out).fingerprint == run(dtype="float32", batch_size=4).fingerprint
