"""The command that says which head suits a stream of yours."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastlayer.catalogue import forms_of_scenarios
from lastlayer.cli.app import CHOOSE, app, stopping
from lastlayer.cli.out import make_room
from lastlayer.cli.text import columns, not_used
from lastlayer.errors import OptionError
from lastlayer.progress import duration

if TYPE_CHECKING:
    from lastlayer.advice import Advice
    from lastlayer.features.data import Features, TrainingFeatures

EVERY = 10.0  # seconds between lines where there is no terminal


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
    label: Annotated[str | None, typer.Option(help="The label column to learn.")] = None,
    embedding: Annotated[
        str | None, typer.Option(help="The column of embeddings of a table, as in import.")
    ] = None,
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
    forgettable: Annotated[
        bool, typer.Option("--forgettable", help="The head must be able to forget samples.")
    ] = False,
    latency: Annotated[
        str | None,
        typer.Option(help="How long one prediction may take on this machine, such as 1ms."),
    ] = None,
    heads: Annotated[
        list[str] | None, typer.Option(help="These candidates only: a,b; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides which rows are held out.")] = 0,
    page: Annotated[
        Path | None, typer.Option(help="Also write the answer to this .html file.")
    ] = None,
) -> None:
    """Say which head suits your stream, chosen on rows held out of its training data."""
    from lastlayer.advice import advise as ask  # noqa: PLC0415  (keeps --help quick)

    if page is not None:
        make_room(page)
    chosen = _scenario(features, scenario, incremental, by)
    data = _load(features, chosen, label, embedding, group)
    names = [name for part in heads or () for name in part.split(",") if name]
    with _progress() as tell:
        advice = ask(
            data,
            chosen,
            group=group,
            linear=linear,
            memory=memory,
            no_samples=no_samples,
            forgettable=forgettable,
            latency=latency,
            heads=names or None,
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
    print(not_used(getattr(data, "validation", None)))
    if page is not None:
        advice.page(page)
        print(f"wrote {page}")


def _load(
    features: str, scenario: str, label: str | None, embedding: str | None, group: str | None
) -> "Features | TrainingFeatures":
    """Load features, or read a table with the columns that the stream needs."""
    from lastlayer import load_features  # noqa: PLC0415
    from lastlayer.features.importing import import_training  # noqa: PLC0415
    from lastlayer.features.load import TABLES  # noqa: PLC0415
    from lastlayer.study import ScenarioSpec  # noqa: PLC0415

    if Path(features).suffix.lower() not in TABLES:
        if embedding is not None:
            raise OptionError(f"--embedding is for tables, and {features} is not one: leave it out")
        return load_features(features, label)
    by = ScenarioSpec.parse(scenario).by
    kept = dict.fromkeys(name for name in (by, group) if name is not None and name != label)
    return import_training(features, embedding, label, list(kept))


def _scenario(features: str, scenario: str | None, incremental: str | None, by: str | None) -> str:
    """Return the stream that the options describe; bundled features have a default."""
    from lastlayer.catalogue import SCENARIOS  # noqa: PLC0415

    classes, values = incremental and f"incremental:{incremental}", by and f"mixed:{by}"
    given = [text for text in (scenario, classes, values) if text]
    own = features.partition("/")[0]
    if not given and own in SCENARIOS and SCENARIOS[own].bundled:
        given = [own]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise OptionError(
            f"expected one of --scenario, --incremental and --by, got {found}; "
            "--scenario iid stands for everything at once"
        )
    return given[0]


def _ranked(advice: "Advice") -> Iterator[tuple[str, ...]]:
    """Yield a line for each head, or for several that give the same answers."""
    from lastlayer.advice.needs import time_in_words  # noqa: PLC0415
    from lastlayer.catalogue import size_in_words  # noqa: PLC0415

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


@contextmanager
def _progress() -> Iterator[Callable[[str, float], None]]:
    """Draw the progress and the time left on a terminal; elsewhere print a line now and then."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    console = Console(stderr=True)
    shown = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    began = last = time.monotonic()
    with Progress(*shown, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=1.0)

        def tell(stage: str, done: float) -> None:
            nonlocal last
            bar.update(task, description=stage, completed=done)
            now = time.monotonic()
            if not console.is_terminal and now - last >= EVERY and 0 < done < 1:
                last = now
                left = duration((now - began) * (1 - done) / done)
                print(f"{done:4.0%}  {stage}, {left} left", file=sys.stderr)

        yield tell
