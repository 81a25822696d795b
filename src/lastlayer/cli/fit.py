"""The verb that trains a new head on features, or an existing one further."""

from contextlib import nullcontext
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app, stopping
from lastlayer.cli.out import prepare_head, say_written
from lastlayer.cli.text import count, describe_calibration
from lastlayer.core.names import class_name, first_few
from lastlayer.core.progress import bar
from lastlayer.errors import OptionError

FAR = 4.0  # times as long, or as short, as a learning rate suits


@app.command(rich_help_panel=USE)
def fit(
    features: Annotated[
        str,
        typer.Argument(
            help="A features file, cifar10 or cifar100, or a table that import takes; or shards: a "
            "folder, or a pattern such as 'shards/*.parquet'."
        ),
    ],
    head: Annotated[
        str | None,
        typer.Option(help="A name (lastlayer list heads), or a head's file, to train it further."),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="A head's file: begin a new head like it, to be merged with it later."),
    ] = None,
    out: options.HeadOut = None,
    rows: options.Rows = "train",
    label: options.Label = None,
    answer: Annotated[
        str | None,
        typer.Option(help="Coarser label column to answer with; --label is the finer, learned."),
    ] = None,
    embedding: options.Embedding = None,
    weight: options.Weight = None,
    mask: Annotated[
        str | None, typer.Option(help="Mask of a head trained by gradient: none, single or group.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="exact (the default), or paper.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate, if not the head's own.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="How often a head trained by gradient sees the data.")
    ] = None,
    feature_scale: Annotated[
        float | None,
        typer.Option(help="Divide features by this, for a head trained by gradient.  [1]"),
    ] = None,
    option: options.HeadOption = None,
    calibration: Annotated[
        float | None,
        typer.Option(help="Share of rows to hold out and calibrate with, such as 0.1."),
    ] = None,
    drop: options.Drop = None,
    relabel: options.Relabel = None,
    seed: options.Seed = 0,
    broken: options.Broken = "stop",
    learned: Annotated[
        str,
        typer.Option(help="What to do about shards that it has learned: stop, skip or again."),
    ] = "stop",
    ray: options.Ray = None,
    parts: Annotated[
        Path | None,
        typer.Option(help="Folder for partial results from shards; by default beside --out."),
    ] = None,
    accept_features: options.AcceptFeatures = False,
    force: options.Force = False,
) -> None:
    """Train a head on features and save it to a file, or train a saved one further.

    With shards, rerun after a kill to resume.
    """
    from lastlayer.data.corrections import Corrections
    from lastlayer.data.rows import corrected, read_rows
    from lastlayer.estimator import HeadClassifier, fitting

    given: dict[str, Any] = {"mask": mask, "preset": preset, "lr": lr, "epochs": epochs}
    given |= {"feature_scale": feature_scale, "calibration": calibration, "seed": seed or None}
    given["options"] = options.of_head(option) or None
    given = {name: value for name, value in given.items() if value is not None}
    if (head is None) == (like is None):
        raise OptionError("pass --head NAME, --head FILE or --like FILE, and only one of them")
    begin: Any = head if like is None else HeadClassifier.load(like).fresh()
    further = head is not None and fitting.is_head_file(head)
    if out is None and not further:
        raise OptionError("--out FILE is missing: a new head needs a file to be saved to")
    read = [*fitting.files_of(features), *filter(None, (drop, relabel, like))]
    place = prepare_head(Path(head or ""), out, *read, force=force)
    if (further or like) and (wrong := given.keys() - {"epochs", "calibration"}):
        raise OptionError(
            f"{head or like} keeps its settings: leave out {', '.join(sorted(wrong))}"
        )
    how: dict[str, Any] = {"rows": rows, "embedding": embedding, "label": label}
    given |= {"broken": broken, "learned": learned, "ray": ray, "weight": weight, "answer": answer}
    outcome, folder = "nothing was written", parts
    if sharded := fitting.goes_by_shards(features, begin):
        folder = parts or place.with_name(f"{place.name}.parts")
        outcome = f"parts are in {folder}; rerun the same command to resume"
        given |= {"drop": drop, "relabel": relabel}
    given |= {**how, "parts": folder, "accept_features": accept_features}
    found: Any = features
    with stopping(outcome), bar(f"{features}, {head or like}", show=sharded, unit="rows") as tell:
        with fitting.changing(Path(head or ""), place) if further else nullcontext(begin) as old:
            known, said = getattr(old, "column_names", ()), len(getattr(old, "origin_", ()))
            before = set(old.labels_.names) if isinstance(old, HeadClassifier) and further else None
            if not sharded:
                also = [name for name in (weight, answer) if name is not None]
                found = read_rows(features, **how, also=also, columns=known)
                found = corrected(found, drop, relabel)
            clf = fitting.fit(found, old, **given, progress=tell)
        if not further:
            clf.save(place)
    # The parts are needed until the head is in its file.
    if folder is not None and parts is None:
        rmtree(folder, ignore_errors=True)
    if not (further or like or sharded or lr or feature_scale):
        print(_about_length(clf.head_, found[0].z), end="")
    for did, suspects in (("left out", drop), ("relabelled", relabel)):
        if suspects is not None:
            print(f"{did} {count(len(Corrections.read(suspects).rows), 'row')} of {suspects}")
    rows_read = None if sharded else sum(len(part.z) for part in found)
    _say_trained(clf, rows_read, before, said, held_out=calibration is not None)
    say_written(place)


def _say_trained(
    clf: Any, rows: int | None, before: set[str] | None, said: int, held_out: bool
) -> None:
    """Print what was learned, of that many rows; None: of shards, after ``said`` others.

    ``before`` are the classes that it had, None if it was new.
    """
    calibrated = clf.head_.calibration
    held = calibrated.rows if held_out and calibrated is not None else 0
    did = f"trained {clf.head_.name}{'' if before is None else ' further'}"
    of_shards = [*clf.origin_[said:], "nothing, since all shards were learned before"][0]
    on = f": {of_shards}" if rows is None else f" on {count(rows - held, 'row')}"
    new = [] if before is None else [name for name in clf.labels_.names if name not in before]
    named = f", {len(new)} new: {first_few([class_name(name) for name in new])}" if new else ""
    learned, answered = len(clf.labels_.ordered), len(clf.classes_)
    coarser = "" if clf.answers is None else f", answered as {count(answered, 'label')}"
    print(f"{did}{on}; {count(learned, 'class')}{named}{coarser}")
    if calibrated is not None:
        print(describe_calibration(calibrated))


def _about_length(head: Any, z: Any) -> str:
    """Return a note where the learning rate of a layer cannot suit the length of the features."""
    from lastlayer.evaluate.rates import NORM
    from lastlayer.layers import LAYERS

    if head.name not in LAYERS or LAYERS[head.name].form.unit_input:
        return ""
    length = float(z[:10_000].double().square().sum(dim=1).mean().sqrt())
    if not length or NORM / FAR < length < NORM * FAR:
        return ""
    return (
        f"note: the features have a length of about {length:.2g}, and the learning rate of "
        f"{head.name} suits {NORM:.0f}: try --feature-scale {length / NORM:.2g}, or a head without "
        "gradient, such as slda\n"
    )
