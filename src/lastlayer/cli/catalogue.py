"""The command that says what there is, by the names that the other commands take."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import typer

from lastlayer.cli.app import app
from lastlayer.cli.text import columns
from lastlayer.names import look_up

Row = tuple[str, ...]

# The logit of class i, and when to use the head.
ADVICE = {
    "linear": ("z·A_i + b_i", "data that come shuffled; forgets most when they do not"),
    "linear_no_bias": ("z·A_i", "as linear, where no class should win by its bias"),
    "weight_norm": ("z·A_i/‖A_i‖", "where no class should win by the length of its row"),
    "original_weight_norm": ("γ_i · z·A_i/‖A_i‖", "as weight_norm, with a learned length"),
    "cosine": ("s · cos(z, A_i)", "where only angles count; with +single for new classes"),
    "knn": ("log of its share of the vote", "classes of any shape; keeps all features"),
    "mean": ("−‖z − μ_i‖", "the simplest and smallest that never forgets"),
    "median": ("−‖z − med_i‖", "as mean, with outliers; keeps all features"),
    "slda": ("z·Λμ_i − ½ μ_iᵀΛμ_i", "the first choice, whatever the drift"),
}


@app.command("list")
def list_(
    what: Annotated[
        str,
        typer.Argument(help="heads, scenarios, features, datasets, backbones or plans; all."),
    ] = "",
) -> None:
    """Say what there is, by the names that the other commands take."""
    chosen = {what: look_up(what, LISTS, "list")} if what else LISTS
    for name, rows in chosen.items():
        print(f"{name}\n{columns(rows(), indent='  ')}")


def _heads() -> Iterator[Row]:
    from lastlayer.heads import HEADS  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.layers import LAYERS, MASKS  # noqa: PLC0415

    masks = " ".join(f"+{mask}" for mask in MASKS if mask != "none")
    for name in HEADS:
        yield name, masks if name in LAYERS else "", *ADVICE[name]


def _scenarios() -> Iterator[Row]:
    from lastlayer.scenarios import SCENARIOS  # noqa: PLC0415

    for name, entry in SCENARIOS.items():
        needs = "bundled" if entry.bundled else f"needs features of {entry.features}"
        yield name, needs, entry.description


def _features() -> Iterator[Row]:
    from lastlayer.features.catalogue import SHORT, load_features  # noqa: PLC0415

    for short, full in SHORT.items():
        yield short, full, str(load_features(full))


def _datasets() -> Iterator[Row]:
    from lastlayer.features.datasets.catalogue import DATASETS  # noqa: PLC0415

    for name, dataset in DATASETS.items():
        yield name, f"labels: {', '.join(dataset.labels)}", dataset.description


def _backbones() -> Iterator[Row]:
    from lastlayer.features.backbones.catalogue import BACKBONES  # noqa: PLC0415

    for name, backbone in BACKBONES.items():
        yield name, f"weights: {backbone.weights}"
    yield "timm:NAME", "any model of timm, with its weights and preprocessing"


def _plans() -> Iterator[Row]:
    from lastlayer.study.plan import SHIPPED  # noqa: PLC0415

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
