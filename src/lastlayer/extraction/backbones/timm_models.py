"""Any model of timm as a backbone, with the preprocessing that it was trained with."""

import os
from difflib import get_close_matches
from functools import partial
from typing import Any

from torch import Tensor, nn

from lastlayer.core.extras import extra
from lastlayer.errors import MissingFileError, UnknownNameError
from lastlayer.extraction.backbones.preparation import Transform, to_pillow
from lastlayer.extraction.backbones.weight_files import fit, read_state

PREFIX = "timm:"


def load_timm(name: str, weights: str | os.PathLike[str] | None) -> tuple[nn.Module, Transform]:
    """Build a model without its classifier, with the weights in a file, or with timm's own.

    With it comes what timm does to an image before this model sees it.
    """
    with extra("images", f"{PREFIX}{name}"):
        import timm  # noqa: PLC0415  (an extra)
        from timm.data import create_transform, resolve_model_data_config  # noqa: PLC0415
    _check_known(timm, name)
    network = _build(timm, name, pretrained=weights is None)
    if weights is not None:
        expected = f"the weights of {PREFIX}{name}"
        fit(
            network, read_state(weights, expected), f"{expected} in {weights}", _classifier(network)
        )
    config = resolve_model_data_config(network)
    return network, partial(_prepared, create_transform(**config, is_training=False))


def _prepared(transform: Any, image: Any) -> Tensor:
    x: Tensor = transform(to_pillow(image))
    return x


def _check_known(timm: Any, name: str) -> None:
    model, _, tag = name.partition(".")
    if not timm.is_model(model):
        near = get_close_matches(model, timm.list_models(), n=1)
        hint = f"; did you mean '{PREFIX}{near[0]}'?" if near else ";"
        raise UnknownNameError(f"unknown timm model '{model}'{hint} timm.list_models() lists all")
    if tag and name not in timm.list_pretrained(model):
        raise UnknownNameError(
            f"unknown weights '{tag}' of '{PREFIX}{model}'; there are: "
            f"{', '.join(known.partition('.')[2] for known in timm.list_pretrained(model))}"
        )


def _build(timm: Any, name: str, pretrained: bool) -> nn.Module:
    network: nn.Module = timm.create_model(name, pretrained=False, num_classes=0)
    if not pretrained:
        return network
    try:
        return timm.create_model(name, pretrained=True, num_classes=0)  # type: ignore[no-any-return]
    except Exception as error:  # a download may fail in many ways
        hub = network.pretrained_cfg.get("hf_hub_id")  # type: ignore[union-attr, operator]
        file = f"model.safetensors of https://huggingface.co/{hub}" if hub else "its weights"
        raise MissingFileError(
            f"cannot download the weights of {PREFIX}{name} ({error}): copy {file} to this machine "
            "and pass it with --weights"
        ) from error


def _classifier(network: Any) -> tuple[str, ...]:
    """Return the names of the removed classifier's weights: fc, head.fc, or two heads."""
    layers = network.pretrained_cfg.get("classifier") or ()
    return tuple(f"{layer}." for layer in ([layers] if isinstance(layers, str) else layers))
