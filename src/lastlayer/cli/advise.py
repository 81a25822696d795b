"""The verb that says which head suits a stream of yours."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastlayer.catalogue.head_cards import card_of
from lastlayer.cli import options
from lastlayer.cli.app import CHOOSE, app, stopping
from lastlayer.cli.out import prepare
from lastlayer.cli.text import columns, count, sizes
from lastlayer.core.progress import bar
from lastlayer.errors import OptionError

if TYPE_CHECKING:
    from lastlayer.advice import Advice
    from lastlayer.data.features import Features, TrainingFeatures

ALL_AT_ONCE = "iid"  # the scenario where none is named


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
    page: options.Page = None,
    as_json: options.Json = False,
    force: options.Force = False,
) -> None:
    """Say which head suits your stream, chosen on rows held out of its training data."""
    from lastlayer.advice import advise as ask
    from lastlayer.data.load import short_name
    from lastlayer.data.tables.which_columns import LABELS
    from lastlayer.scenarios import ScenarioSpec

    if page is not None:
        prepare(page, option="--page", force=force)
    short = short_name(features)
    chosen = ScenarioSpec.from_options(
        scenario, incremental, by, label, short, otherwise=ALL_AT_ONCE
    )
    data = _load(features, chosen.by, label, embedding, group)
    with bar(f"{features}, {chosen}", show=not as_json) as tell:
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
    other = label or (None if advice.data.label == data.train.label else advice.data.label)
    if advice.by is not None:
        other = advice.by.column
    elif other is None and _is_table(features) and data.train.label.lower() not in LABELS:
        other = data.train.label
    then = _next(advice, features, str(chosen), embedding, other)
    if page is not None:
        advice.page(page, then)
    if as_json:
        told = {"features": features, "scenario": str(chosen), **advice.as_dict(), "next": then}
        print(json.dumps(told, ensure_ascii=False, indent=2))
        return
    print(f"{sizes(data)}, {_tasks(advice, by)}")
    if not (scenario or incremental or by) and str(chosen) == ALL_AT_ONCE:
        print("Everything at once: --incremental, --by or --scenario names a stream to judge by")
    print(f"\n{advice.answer}\n\nThe stream")
    for sentence in advice.stream.sentences:
        print(f"  {sentence}")
    print("\nCandidates: % of the rows judged by that are right, and points behind the best\n")
    print(columns(_ranked(advice), indent="  "))
    print("\nWhy, and what it costs")
    for reason in advice.reasons:
        print(f"  {reason}")
    if page is not None:
        print(f"wrote {page}")
    if then.startswith("lastlayer fit"):
        print("\nWith --calibration 0.1 the head can also tell unknown inputs (predict --unknown).")
    print(f"\nNext: {then}")


def _tasks(advice: "Advice", by: str | None) -> str:
    """Return how many classes there are, and how they come."""
    stream = advice.data
    classes = f"{count(stream.n_classes, 'class')} of '{stream.label}'"
    if stream.n_tasks == 1:
        return classes
    return f"{classes} in {stream.n_tasks} tasks{f', one for each {by}' if by else ''}"


def _next(
    advice: "Advice", features: str, scenario: str, embedding: str | None, label: str | None
) -> str:
    """Return the command that fits the advised head, complete; ``label``: unless it is the usual.

    A head trained by gradient learns task by task, and no command says which rows are a task.
    """
    head, stream = advice.head, advice.data
    out = f"{Path(features).stem}-{head.replace('+', '-')}.safetensors"
    if card_of(head).by_gradient and stream.n_tasks > 1:
        load = f"ll.load_features({features!r}, {label!r})"
        if _is_table(features):
            kept = [name for name in stream.columns if name != stream.label]
            load = f"table({features!r}, {embedding!r}, {stream.label!r}, {kept!r})"
        code = (
            "import lastlayer as ll; from lastlayer.data.from_tables import import_training as "
            f"table; ll.advise({load}, {scenario!r}, heads=[{head!r}]).fit().save({out!r})"
        )
        return shlex.join(["python", "-c", code])
    words = ["lastlayer", "fit", features, "--head", head]
    words += [] if label is None else ["--label", label]
    words += [] if advice.by is None else ["--answer", stream.label]
    words += [] if embedding is None else ["--embedding", embedding]
    if card_of(head).by_gradient:
        words += ["--feature-scale", f"{advice.judgement.scale:.6g}"]
        words += ["--lr", f"{advice.judgement.verdicts[head].lr:.6g}"]
        words += ["--epochs", str(advice.judgement.epochs)]
    return shlex.join([*words, "--out", out])


def _load(
    features: str, by: str | None, label: str | None, embedding: str | None, group: str | None
) -> "Features | TrainingFeatures":
    """Load features, or read a table with the columns that the stream needs."""
    from lastlayer.data import load_features
    from lastlayer.data.from_tables import import_training

    if not _is_table(features):
        if embedding is not None:
            raise OptionError(f"--embedding is for tables, and {features} is not one: leave it out")
        return load_features(features, label)
    kept = dict.fromkeys(name for name in (by, group) if name is not None and name != label)
    return import_training(features, embedding, label, list(kept))


def _is_table(features: str) -> bool:
    from lastlayer.data.load import TABLES

    return Path(features).suffix.lower() in TABLES


def _ranked(advice: "Advice") -> Iterator[tuple[str, ...]]:
    """Yield a line for each head, or for several that give the same answers."""
    from lastlayer.advice.needs import time_in_words
    from lastlayer.catalogue.head_cards import size_in_words

    yield "head", "right", "behind", "keeps", "prediction", ""
    for rows in advice.table.partition_by("alike", maintain_order=True):
        first, *rest = rows.to_dicts()
        others = ", ".join(row["head"] for row in rest)
        alike = f"same answers: {others}" if others else ""
        verdict = ": ".join(filter(None, (first["verdict"], first["unmet"])))
        yield (
            first["head"],
            f"{100 * first['accuracy']:.1f}",
            "" if first["behind"] is None else f"{100 * first['behind']:.1f}",
            size_in_words(first["memory"]),
            time_in_words(first["latency"]),
            "; ".join(filter(None, (verdict, alike))),
        )
