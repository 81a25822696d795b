"""Any model of timm is a backbone, with timm's own preprocessing; images end up in scenarios."""

import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.data import create_transform, resolve_model_data_config

import lastlayer as ll
import pictures
from lastlayer.cli import main
from lastlayer.errors import FileFormatError, MissingFileError, UnknownNameError
from lastlayer.extraction.backbones.by_name import load_backbone
from lastlayer.extraction.from_images import extract_named

MODELS = ("test_resnet.r160_in1k", "test_vit", "test_efficientnet")


def reference(name: str) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return timm.create_model(name).eval()  # type: ignore[no-any-return]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    save_file(reference(MODELS[0]).state_dict(), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("name", MODELS)
def test_features_are_what_the_classifier_sees(name: str, tmp_path: Path) -> None:
    whole = reference(name)
    save_file(whole.state_dict(), tmp_path / "model.safetensors")
    network, _ = load_backbone(f"timm:{name}", tmp_path / "model.safetensors")
    x = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = whole.forward_head(whole.forward_features(x), pre_logits=True)  # type: ignore[operator]
        assert torch.equal(network(x), expected)
    assert not network.training


@pytest.mark.parametrize("name", MODELS)
def test_images_are_prepared_as_by_timm(name: str, tmp_path: Path) -> None:
    whole = reference(name)
    save_file(whole.state_dict(), tmp_path / "model.safetensors")
    _, preparations = load_backbone(f"timm:{name}", tmp_path / "model.safetensors")
    assert list(preparations) == ["trained"]
    expected = create_transform(**resolve_model_data_config(whole), is_training=False)
    image = pictures.picture(0, (200, 170))
    assert torch.equal(preparations["trained"](image), expected(image))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    assert torch.equal(preparations["trained"](pixels), expected(image))


def test_names_that_timm_does_not_know() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'timm:resnet18'"):
        load_backbone("timm:resnett18")
    with pytest.raises(UnknownNameError, match=r"unknown weights 'nobody' .*there are: a1_in1k, "):
        load_backbone("timm:resnet18.nobody")


def test_a_download_that_fails_names_the_file() -> None:
    file = "model.safetensors of https://huggingface.co/timm/resnet18.a1_in1k"
    with pytest.raises(
        MissingFileError, match=rf"cannot download .*{file} to this machine .* with --weights"
    ):
        load_backbone("timm:resnet18.a1_in1k")


def test_weights_of_another_model(weights: Path) -> None:
    with pytest.raises(FileFormatError, match=rf"timm:test_vit in {weights} do not fit: .*missing"):
        load_backbone("timm:test_vit", weights)


def test_core50_from_images_to_three_scenarios(tmp_path: Path, weights: Path) -> None:
    root = pictures.core50(tmp_path / "data")
    data = extract_named(
        "core50", root, f"timm:{MODELS[0]}", tmp_path / "z.safetensors",
        weights=weights, workers=2, device="cpu",
    )  # fmt: skip
    assert (len(data.train), len(data.test), data.in_features) == (400, 150, 96)
    assert data.origin.made == (
        "lastlayer extract core50 --root ROOT --backbone timm:test_resnet.r160_in1k "
        "--weights WEIGHTS --normalisation trained --dtype float16 --out FILE"
    )
    for scenario in ("core50", "core10_lifelong", "core10_mix"):
        assert ll.make_scenario(scenario, data).name == scenario


def test_the_command_on_a_folder_with_a_broken_image(
    tmp_path: Path,
    weights: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = [f"{domain}/{c}/{n}.jpg" for domain in ("day", "night") for c in "ab" for n in range(4)]
    root = pictures.tree(tmp_path / "root", *names)
    (root / "day" / "a" / "0.jpg").write_bytes(b"no image")
    words = ["extract", "folder", "--root", root, "--backbone", f"timm:{MODELS[0]}"]
    words += ["--weights", weights, "--out", tmp_path / "z.safetensors", "--test", "0.25"]

    def run(*more: str) -> int:
        monkeypatch.setattr(sys, "argv", ["lastlayer", *map(str, words), *more])
        with pytest.raises(SystemExit) as exit_:
            main()
        return int(exit_.value.code or 0)

    assert run() == 1
    broken = root / "day" / "a" / "0.jpg"
    assert f"expected an image, but {broken} is not one" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="left out 1 broken images"):
        assert run("--broken", "skip") == 0
    data = ll.load_features(tmp_path / "z.safetensors")
    assert len(data.train) + len(data.test) == len(names) - 1
    assert list(data.names) == ["class", "domain"]
