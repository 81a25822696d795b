"""The verb that lists what there is, by the names that the other commands take."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import typer

from lastlayer.catalogue.head_cards import HEADS
from lastlayer.catalogue.scenario_cards import KINDS, SCENARIOS
from lastlayer.cli.app import CHOOSE, app
from lastlayer.cli.text import columns
from lastlayer.core.names import look_up

Row = tuple[str, ...]


@app.command("list", rich_help_panel=CHOOSE)
def list_(
    what: Annotated[
        str,
        typer.Argument(
            help="heads, scenarios, features, datasets, backbones or plans; without it, all."
        ),
    ] = "",
) -> None:
    """List the names that the other commands take."""
    chosen = {what: look_up(what, LISTS, "list")} if what else LISTS
    for name, rows in chosen.items():
        print(f"{name}\n{columns(rows(), indent='  ')}")


def _heads() -> Iterator[Row]:
    for name, card in HEADS.items():
        masks = " ".join(f"+{mask}" for mask in card.masks if mask != "none")
        yield name, masks, card.formula, card.use


def _scenarios() -> Iterator[Row]:
    for name, card in SCENARIOS.items():
        needs = "bundled" if card.bundled else f"needs features of {card.features}"
        yield name, needs, card.description
    for kind in KINDS.values():
        yield kind.form, "any features", kind.description


def _features() -> Iterator[Row]:
    from lastlayer.data.load import SHORT, load_features

    for short, full in SHORT.items():
        yield short, full, str(load_features(full))


def _datasets() -> Iterator[Row]:
    from lastlayer.extraction.datasets.readers import DATASETS

    for name, dataset in DATASETS.items():
        yield name, f"labels: {', '.join(dataset.labels)}", dataset.description


def _backbones() -> Iterator[Row]:
    from lastlayer.extraction.backbones.by_name import BACKBONES

    for name, backbone in BACKBONES.items():
        yield name, f"weights: {backbone.weights}"
    yield "timm:NAME", "any timm model, with its weights and preprocessing"
    yield "st:NAME_OR_FOLDER", "any sentence-transformers model, for texts"


def _plans() -> Iterator[Row]:
    from lastlayer.study.plan_file import SHIPPED

    for name, path in SHIPPED.items():
        with path.open(encoding="utf-8") as file:
            yield name, file.readline().strip("# \n")


LISTS: Mapping[str, Callable[[], Iterator[Row]]] = {
    "heads": _heads,
    "scenarios": _scenarios,
    "features": _features,
    "datasets": _datasets,
    "backbones": _backbones,
    "plans": _plans,
}
