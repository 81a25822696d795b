"""The verb that compares heads on a stream."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import CHOOSE, app
from lastlayer.cli.out import prepare_table, write_table
from lastlayer.cli.text import called, columns, count, sizes, spread
from lastlayer.errors import DataError, OptionError

if TYPE_CHECKING:
    import polars as pl

    from lastlayer.data import Features
    from lastlayer.scenarios import ScenarioSpec


@app.command(rich_help_panel=CHOOSE)
def compare(
    features: Annotated[str, typer.Argument(help="cifar10, cifar100, or a features file.")],
    scenario: options.Scenario = None,
    incremental: options.Incremental = None,
    by: options.By = None,
    heads: options.Heads = None,
    orders: Annotated[
        str, typer.Option(help="How many orders of the tasks, or their seeds: 0-3,6.")
    ] = "8",
    preset: Annotated[
        str, typer.Option(help="exact, or paper (as published; docs/decisions).")
    ] = "exact",
    label: options.Label = None,
    lr: Annotated[
        float | None,
        typer.Option(
            help="Learning rate of all heads trained by gradient; by default each head's own."
        ),
    ] = None,
    device: options.Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Write all accuracies to this .csv or .parquet.")
    ] = None,
) -> None:
    """Rank heads on a stream by their accuracy on test rows; to choose one, use advise."""
    from lastlayer import load_features, study
    from lastlayer.data.load import short_name
    from lastlayer.scenarios import ScenarioSpec

    if out is not None:
        prepare_table(out)
    data = load_features(features, label)
    chosen = ScenarioSpec.from_options(scenario, incremental, by, label, short_name(features))
    seeds = _orders(orders)
    names = options.heads_in(heads) or None
    how: dict[str, Any] = {"preset": preset, "lr": lr, "device": device, "progress": True}
    try:
        table = study.compare(data, chosen, names, seeds, **how)
    except DataError as error:  # such as a file made for another scenario
        raise DataError(f"{features}: {error}") from error
    if out is not None:
        write_table(table, out)
    ranking = study.rank(table)
    how_many = f"{count(len(seeds), 'order')} of its tasks, preset {preset}"
    print(f"{sizes(data)}\n{called(chosen, by)}, {how_many}: final accuracy in %\n")
    print(columns(_ranked(ranking), indent="  "))
    if ranking["accuracy"][0] is None:
        print("\nNo head has learned anything: use a smaller learning rate.")
    print("\nRetrained on everything at once:")
    for line in _retrained(data, chosen, ranking["head"].to_list(), device):
        print(f"  {line}")
    advise = ["lastlayer", "advise", features, "--scenario", str(chosen)]
    advise += [] if label is None else ["--label", label]
    print(f"\n{_measured_on(len(data.test), shlex.join(advise))}")
    if data.validation is not None:
        print(f"Its {len(data.validation)} validation rows are not used.")
    if out is not None:
        print(f"wrote {out}")


def _measured_on(n: int, advise: str) -> str:
    """Return which rows the ranking is based on, and the command that chooses a head."""
    return (
        f"Measured on the {n} test rows of all tasks after the last task; ± is over the orders "
        f"of the tasks, not over rows.\nThe best on these rows need not be the best on others: to "
        f"choose a head, use `{advise}`, which judges on rows held out of the training data, and "
        "tunes the learning rate of heads trained by gradient."
    )


def _retrained(
    data: "Features", scenario: "ScenarioSpec", heads: Sequence[str], device: str
) -> Iterator[str]:
    """Yield what a softmax regression reaches, also behind the best head's map, and the kernel."""
    from lastlayer import study
    from lastlayer.catalogue.head_cards import split_name
    from lastlayer.heads import options_of
    from lastlayer.study.comparison import KERNEL

    mapped = [name for name in heads if "map" in options_of(split_name(name)[0])][:1]
    for behind in (None, *mapped, KERNEL, "random_ridge"):
        if behind == KERNEL and KERNEL in heads:
            return
        if behind == "random_ridge" and mapped:
            return
        try:
            found = study.upper_bound(data, scenario, behind=behind, device=device)
        except DataError as error:  # the ranking stands by itself
            if behind != KERNEL:  # where it would keep too many rows, a wide map stands for it
                yield f"none behind the map of {behind}: {error}" if behind else f"none: {error}"
            continue
        yield f"{found.name}{'' if behind == KERNEL else ', converged'}: {100 * found.accuracy:.2f}"
        if behind == KERNEL:
            return


def _orders(text: str) -> list[int]:
    """Read a number of orders, or their seeds: "0,3,5", "0-3,6"."""
    from lastlayer.study.comparison import seeds_of
    from lastlayer.study.plan_fields import read_seeds

    if text.isascii() and text.isdigit():
        return seeds_of(int(text[:20]))
    try:
        return list(read_seeds(text))
    except ValueError as error:
        raise OptionError(f"--orders: {error}, or a number of orders: 8") from None


def _ranked(ranking: "pl.DataFrame") -> Iterator[tuple[str, ...]]:
    yield "", "head", "accuracy", ""
    for place, row in enumerate(ranking.iter_rows(named=True), start=1):
        lost = f"diverged in {count(row['diverged'], 'order')}" if row["diverged"] else ""
        yield f"{place}.", row["head"], spread(row["accuracy"], row["deviation"]), lost
