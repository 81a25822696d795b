"""The verb that says which head suits a stream of yours."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastlayer.cli import options
from lastlayer.cli.app import CHOOSE, app, stopping
from lastlayer.cli.out import prepare
from lastlayer.cli.text import columns
from lastlayer.core.progress import bar
from lastlayer.errors import OptionError

if TYPE_CHECKING:
    from lastlayer.advice import Advice
    from lastlayer.data.features import Features, TrainingFeatures


@app.command(rich_help_panel=CHOOSE)
@stopping("nothing was written")
def advise(
    features: Annotated[
        str,
        typer.Argument(
            help="cifar10, cifar100, a features file, or a table (without a split column, all its "
            "rows are training rows)."
        ),
    ],
    scenario: options.Scenario = None,
    incremental: options.Incremental = None,
    by: options.By = None,
    label: options.Label = None,
    embedding: options.Embedding = None,
    group: Annotated[
        str | None,
        typer.Option(help="Column that names each row's source; rows of one source stay together."),
    ] = None,
    linear: Annotated[
        bool, typer.Option("--linear", help="The head must be a plain nn.Linear.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option(help="How much the head may keep, such as 1MB.")
    ] = None,
    no_samples: Annotated[
        bool, typer.Option("--no-samples", help="The head may not keep rows of the data.")
    ] = False,
    forgets: Annotated[
        bool, typer.Option("--forgets", help="The head must be able to forget samples.")
    ] = False,
    latency: Annotated[
        str | None,
        typer.Option(help="How long one prediction may take on this machine, such as 1ms."),
    ] = None,
    heads: options.Heads = None,
    seed: options.Seed = 0,
    page: Annotated[
        Path | None, typer.Option(help="Also write the answer to this .html file.")
    ] = None,
) -> None:
    """Say which head suits your stream, chosen on rows held out of its training data."""
    from lastlayer.advice import advise as ask
    from lastlayer.data.load import short_name
    from lastlayer.scenarios import ScenarioSpec

    if page is not None:
        prepare(page, option="--page")
    chosen = ScenarioSpec.from_options(scenario, incremental, by, label, short_name(features))
    data = _load(features, chosen.by, label, embedding, group)
    with bar(f"{features}, {chosen}") as tell:
        advice = ask(
            data,
            chosen,
            group=group,
            linear=linear,
            memory=memory,
            no_samples=no_samples,
            forgets=forgets,
            latency=latency,
            heads=options.heads_in(heads),
            seed=seed,
            progress=tell,
        )
    print(f"{data}\n{chosen}\n\n{advice.answer}\n\nThe stream")
    for sentence in advice.stream.sentences:
        print(f"  {sentence}")
    print("\nCandidates: % of held-out rows that are right, and points behind the best\n")
    print(columns(_ranked(advice), indent="  "))
    print("\nWhy, and what it costs")
    for reason in advice.reasons:
        print(f"  {reason}")
    if page is not None:
        advice.page(page)
        print(f"wrote {page}")


def _load(
    features: str, by: str | None, label: str | None, embedding: str | None, group: str | None
) -> "Features | TrainingFeatures":
    """Load features, or read a table with the columns that the stream needs."""
    from lastlayer import load_features
    from lastlayer.data.from_tables import import_training
    from lastlayer.data.load import TABLES

    if Path(features).suffix.lower() not in TABLES:
        if embedding is not None:
            raise OptionError(f"--embedding is for tables, and {features} is not one: leave it out")
        return load_features(features, label)
    kept = dict.fromkeys(name for name in (by, group) if name is not None and name != label)
    return import_training(features, embedding, label, list(kept))


def _ranked(advice: "Advice") -> Iterator[tuple[str, ...]]:
    """Yield a line for each head, or for several that give the same answers."""
    from lastlayer.advice.needs import time_in_words
    from lastlayer.catalogue import size_in_words

    yield "head", "right", "behind", "keeps", "prediction", ""
    lines: dict[str, list[dict[str, object]]] = {}
    for row in advice.table.iter_rows(named=True):
        lines.setdefault(str(row["alike"]), []).append(row)
    for rows in lines.values():
        first = rows[0]
        behind = first["behind"]
        others = ", ".join(str(row["head"]) for row in rows[1:])
        alike = f"same answers: {others}" if others else ""
        verdict = str(first["verdict"])
        unmet = f"{verdict}: {first['unmet']}" if first["unmet"] else verdict
        yield (
            str(first["head"]),
            f"{100 * float(str(first['accuracy'])):.1f}",
            "" if behind is None else f"{100 * float(str(behind)):.1f}",
            size_in_words(float(str(first["memory"]))),
            time_in_words(float(str(first["latency"]))),
            "; ".join(filter(None, (unmet, alike))),
        )
