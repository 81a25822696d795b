"""The study's ImageNet networks: the features are torchvision's own, from weights on disk."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models, transforms

import pictures
from lastlayer.core.tensor_files import fingerprint
from lastlayer.errors import FileFormatError, MissingFileError
from lastlayer.extraction.backbones.by_name import BACKBONES, load_backbone

SIZES = {"resnet18": 512, "vgg16": 4096, "googlenet": 1024}


def reference(name: str) -> nn.Module:
    """The whole network of torchvision, with random weights, as it loads released ones."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = {
            "googlenet": {"aux_logits": True, "transform_input": True, "init_weights": False}
        }
        network = getattr(models, name)(weights=None, **options.get(name, {}))
    return network.eval()  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=SIZES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def weights(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(name) / "weights.pth"
    torch.save(reference(name).state_dict(), path)
    return path


def penultimate(network: nn.Module, name: str, x: Tensor) -> Tensor:
    """What goes into the last layer, seen by a hook."""
    seen: list[Tensor] = []
    last = network.classifier[-1] if name == "vgg16" else network.fc  # type: ignore[index]
    last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))  # type: ignore[union-attr, operator]
    with torch.inference_mode():
        network(x)
    return seen[0]


def test_features_are_what_the_last_layer_sees(name: str, weights: Path) -> None:
    network, _ = load_backbone(name, weights)
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found = network(x)
    assert found.shape == (2, SIZES[name])
    expected = penultimate(reference(name), name, x)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


def test_the_file_that_is_named_is_the_one_torchvision_wants(name: str) -> None:
    kind = {"resnet18": "ResNet18", "vgg16": "VGG16", "googlenet": "GoogLeNet"}[name]
    url = getattr(models, f"{kind}_Weights").IMAGENET1K_V1.url
    assert BACKBONES[name].weights.endswith(url)


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (301, 301), (100, 50), (257, 1000)])
def test_images_are_prepared_as_by_torchvision(size: tuple[int, int]) -> None:
    image = pictures.picture(0, size)
    prepare = BACKBONES["resnet18"].prepare("folder")
    squeeze = transforms.Compose([
        transforms.Resize((224, 224)), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])  # fmt: skip
    trained = models.ResNet18_Weights.IMAGENET1K_V1.transforms()
    assert torch.allclose(prepare["authors"](image), squeeze(image), atol=1e-6)
    assert torch.allclose(prepare["trained"](image), trained(image), atol=1e-6)
    assert next(iter(prepare)) == "authors"


def test_pixels_are_prepared_as_the_picture_that_they_make() -> None:
    image = pictures.picture(0, (32, 32))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    prepare = BACKBONES["resnet18"].prepare("cifar10")["authors"]
    assert torch.equal(prepare(pixels), prepare(image))


def test_weights_with_another_last_layer_or_as_safetensors(tmp_path: Path) -> None:
    state = {k: v for k, v in reference("resnet18").state_dict().items() if not k.startswith("fc")}
    save_file(state | {"fc.weight": torch.zeros(7, 512)}, tmp_path / "mine.safetensors")
    network, _ = load_backbone("resnet18", tmp_path / "mine.safetensors")
    assert fingerprint(network.state_dict()) == fingerprint(state)


def test_weights_of_another_network(weights: Path, name: str) -> None:
    other = "vgg16" if name == "resnet18" else "resnet18"
    with pytest.raises(FileFormatError, match=r"do not fit: \d+ missing \(.*, \d+ unexpected \("):
        load_backbone(other, weights)


def test_early_weights_lack_a_count_that_only_training_reads(tmp_path: Path) -> None:
    state = reference("resnet18").state_dict()
    torch.save({k: v for k, v in state.items() if "num_batches" not in k}, tmp_path / "w.pth")
    load_backbone("resnet18", tmp_path / "w.pth")


def test_a_download_that_fails_names_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def no_network(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torch.hub.download_url_to_file", no_network)
    file = BACKBONES[name].weights.split()[0]
    with pytest.raises(
        MissingFileError, match=rf"no route to host.*{file} to this machine .* --weights"
    ):
        load_backbone(name)


def test_downloaded_weights_are_taken_from_the_cache(
    name: str, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    (cache / BACKBONES[name].weights.split()[0]).symlink_to(weights)
    given, found = (load_backbone(name, path)[0].state_dict() for path in (weights, None))
    assert fingerprint(given) == fingerprint(found)
