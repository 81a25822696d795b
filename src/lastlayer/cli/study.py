"""The command that compares heads on a stream."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastlayer.catalogue import forms_of_scenarios
from lastlayer.cli.app import CHOOSE, app
from lastlayer.cli.out import make_room_for_table, write_table
from lastlayer.cli.text import columns, count, not_used, percent, spread
from lastlayer.errors import DataError, OptionError

if TYPE_CHECKING:
    import polars as pl

    from lastlayer.features import Features

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


@app.command(rich_help_panel=CHOOSE)
def compare(
    features: Annotated[str, typer.Argument(help="cifar10, cifar100, or a features file.")],
    scenario: Annotated[
        str | None,
        typer.Option(
            help=f"A name (lastlayer list scenarios), or one of {forms_of_scenarios()}; "
            "with /LABEL at the end, that label is learned."
        ),
    ] = None,
    incremental: Annotated[
        str | None,
        typer.Option(
            help="New classes in each task: 5 for five tasks, or 4,3,3 for the classes of each."
        ),
    ] = None,
    by: Annotated[str | None, typer.Option(help="A task for each value of this column.")] = None,
    heads: Annotated[
        list[str] | None, typer.Option(help="These heads only: a,b; may be repeated.")
    ] = None,
    orders: Annotated[
        str, typer.Option(help="How many orders of the tasks, or their seeds: 0-3,6.")
    ] = "8",
    preset: Annotated[
        str, typer.Option(help="exact, or paper (as published; docs/decisions).")
    ] = "exact",
    label: Annotated[str | None, typer.Option(help="The label column to learn.")] = None,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Learning rate of all heads trained by gradient; by default each head's own."
        ),
    ] = None,
    device: Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Write all accuracies to this .csv or .parquet.")
    ] = None,
) -> None:
    """Rank heads on a stream by their accuracy on test rows; to choose one, use advise."""
    from lastlayer import load_features, study  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.catalogue import all_heads  # noqa: PLC0415

    if out is not None:
        make_room_for_table(out)
    data = load_features(features, label)
    chosen = _scenario(features, label, scenario, incremental, by)
    seeds = _orders(orders)
    names = [name for part in heads or all_heads() for name in part.split(",") if name]
    options: dict[str, Any] = {"preset": preset, "lr": lr, "device": device, "progress": True}
    try:
        table = study.compare(data, chosen, names, seeds, **options)
    except DataError as error:  # such as a file made for another scenario
        raise DataError(f"{features}: {error}") from error
    if out is not None:
        write_table(table, out)
    ranking, tried = study.rank(table), count(len(seeds), "order")
    print(f"{data}\n{chosen}, {tried} of its tasks, preset {preset}: final accuracy in %\n")
    print(columns(_ranked(ranking), indent="  "))
    if ranking["accuracy"][0] is None:
        print("\nNo head has learned anything: use a smaller learning rate.")
    print("\nRetrained on everything at once:")
    for line in _retrained(data, chosen, ranking["head"].to_list(), device):
        print(f"  {line}")
    print(f"\n{_measured_on(len(data.test), features)}{not_used(data.validation)}")
    if out is not None:
        print(f"wrote {out}")


def _measured_on(n: int, features: str) -> str:
    """Return which rows the ranking is based on, and what to use to choose a head."""
    return (
        f"Measured on the {n} test rows of all tasks after the last task; ± is over the orders "
        f"of the tasks, not over rows.\nThe best on these rows need not be the best on others: to "
        f"choose a head, use `lastlayer advise {features}`, which judges on rows held out of the "
        "training data."
    )


def _retrained(data: "Features", scenario: str, heads: Sequence[str], device: str) -> Iterator[str]:
    """Yield what a softmax regression reaches, on the features and behind the best head's map."""
    from lastlayer import study  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.catalogue import split_name  # noqa: PLC0415
    from lastlayer.heads import options_of  # noqa: PLC0415

    mapped = [name for name in heads if "map" in options_of(split_name(name)[0])]
    for behind in (None, *mapped[:1]):
        try:
            found = study.upper_bound(data, scenario, behind=behind, device=device)
            yield f"{found.name}, converged: {100 * found.accuracy:.2f}"
        except DataError as error:  # the ranking stands by itself
            yield f"none behind the map of {behind}: {error}" if behind else f"none: {error}"


def _orders(text: str) -> list[int]:
    """Read a number of orders, or their seeds: "0,3,5", "0-3,6"."""
    from lastlayer.study.comparison import seeds_of  # noqa: PLC0415
    from lastlayer.study.plan_fields import read_seeds  # noqa: PLC0415

    if text.isascii() and text.isdigit():
        return seeds_of(int(text[:20]))
    try:
        return list(read_seeds(text))
    except ValueError as error:
        raise OptionError(f"--orders: {error}, or a number of orders: 8") from None


def _scenario(
    features: str, label: str | None, scenario: str | None, incremental: str | None, by: str | None
) -> str:
    """Return the scenario that the options describe; bundled features have a default."""
    from lastlayer.catalogue import SCENARIOS  # noqa: PLC0415
    from lastlayer.features.load import SHORT  # noqa: PLC0415

    classes, values = incremental and f"incremental:{incremental}", by and f"mixed:{by}"
    given = [text for text in (scenario, classes, values) if text]
    own = {full: short for short, full in SHORT.items()}.get(features, features)
    if not given and own in SCENARIOS:
        given = [own]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise OptionError(
            f"expected one of --scenario, --incremental and --by, got {found}; "
            "`lastlayer list scenarios` shows how a scenario is written"
        )
    _check_label(given[0], label)
    return given[0]


def _check_label(scenario: str, label: str | None) -> None:
    """Refuse a scenario that learns another label column than the one asked for."""
    from lastlayer.catalogue import SCENARIOS  # noqa: PLC0415
    from lastlayer.study import ScenarioSpec  # noqa: PLC0415

    spec = ScenarioSpec.parse(scenario)
    columns = SCENARIOS[spec.kind].columns if spec.kind in SCENARIOS else ()
    learned = columns[-1] if columns else spec.label
    if label is not None and learned not in (None, label):
        raise OptionError(
            f"scenario '{scenario}' learns '{learned}', got --label {label}: choose another "
            "scenario with --scenario, --incremental or --by"
        )


def _ranked(ranking: "pl.DataFrame") -> Iterator[tuple[str, ...]]:
    yield "", "head", "accuracy", ""
    for place, row in enumerate(ranking.iter_rows(named=True), start=1):
        numbers = (percent(row[name]) for name in ("accuracy", "deviation"))
        lost = f"diverged in {count(row['diverged'], 'order')}" if row["diverged"] else ""
        yield f"{place}.", row["head"], spread(*numbers), lost
