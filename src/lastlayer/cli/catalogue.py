"""The command that says what there is, by the names that the other commands take."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import typer

from lastlayer.cli.app import app
from lastlayer.cli.text import columns
from lastlayer.names import look_up

Row = tuple[str, ...]


@app.command("list")
def list_(
    what: Annotated[
        str, typer.Argument(help="heads, scenarios, features or backbones; all if not named.")
    ] = "",
) -> None:
    """Say what there is, by the names that the other commands take."""
    chosen = {what: look_up(what, LISTS, "list")} if what else LISTS
    for name, rows in chosen.items():
        print(f"{name}\n{columns(rows(), indent='  ')}")


def _heads() -> Iterator[Row]:
    from lastlayer.heads import HEADS  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.layers import LAYERS, MASKS  # noqa: PLC0415

    masks = "".join(f" +{mask}" for mask in MASKS if mask != "none")
    for name, head in HEADS.items():
        by_gradient = name in LAYERS
        text = (LAYERS[name] if by_gradient else head).__doc__ or ""
        yield name, masks.strip() if by_gradient else "", text.splitlines()[0]


def _scenarios() -> Iterator[Row]:
    from lastlayer.scenarios import SCENARIOS  # noqa: PLC0415

    for name, entry in SCENARIOS.items():
        needs = "bundled" if entry.bundled else f"needs features of {entry.features}"
        yield name, needs, entry.description


def _features() -> Iterator[Row]:
    from lastlayer.features.catalogue import SHORT, load_features  # noqa: PLC0415

    for short, full in SHORT.items():
        yield short, full, str(load_features(full))


def _backbones() -> Iterator[Row]:
    from lastlayer.features.backbones import BACKBONES  # noqa: PLC0415

    for name, backbone in BACKBONES.items():
        yield name, f"weights: {backbone.weights}"


LISTS: Mapping[str, Callable[[], Iterator[Row]]] = {
    "heads": _heads,
    "scenarios": _scenarios,
    "features": _features,
    "backbones": _backbones,
}
