"""The command that trains a new head on features, or an existing one further."""

import json
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Annotated, Any

import typer

from lastlayer.cli.app import USE, app, stopping
from lastlayer.cli.extract import RayOption
from lastlayer.cli.out import Force, room_for_head
from lastlayer.cli.text import count, describe_calibration
from lastlayer.errors import OptionError
from lastlayer.progress import bar

FAR = 4.0  # times as long, or as short, as a learning rate suits

FeaturesArgument = Annotated[
    str, typer.Argument(help="A features file, cifar10 or cifar100, or a table that import takes.")
]
ShardsArgument = Annotated[
    str,
    typer.Argument(
        help="A features file, cifar10 or cifar100, or a table that import takes; or shards: a "
        "folder, or a pattern such as 'shards/*.parquet'."
    ),
]
EmbeddingOption = Annotated[
    str | None, typer.Option(help="Columns of embeddings of a table, as import takes them.")
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        help="Column of labels; not needed for a features file, or if it is called y, label or "
        "target."
    ),
]


@app.command(rich_help_panel=USE)
def fit(
    features: ShardsArgument,
    head: Annotated[
        str,
        typer.Option(help="A name (lastlayer list heads), or a head's file, to train it further."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The head's file to write; by default the one trained further."),
    ] = None,
    rows: Annotated[str, typer.Option(help="train, validation, test or all.")] = "train",
    label: LabelOption = None,
    embedding: EmbeddingOption = None,
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
    option: Annotated[
        list[str] | None, typer.Option(help="Option of the head, such as k=7; may be repeated.")
    ] = None,
    calibrate: Annotated[
        float | None,
        typer.Option(help="Share of rows to hold out and calibrate with, such as 0.1."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of random draws.  [0]")] = None,
    broken: Annotated[
        str, typer.Option(help="What to do about a broken shard: stop or skip.")
    ] = "stop",
    ray: RayOption = None,
    parts: Annotated[
        Path | None,
        typer.Option(help="Folder for partial results from shards; by default beside --out."),
    ] = None,
    force: Force = False,
) -> None:
    """Train a head on features and save it to a file, or train a saved one further.

    With shards, rerun after a kill to resume.
    """
    from lastlayer.features.rows import read_rows  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.fitting import files_of, goes_by_shards, is_head_file, update  # noqa: PLC0415
    from lastlayer.fitting import fit as train  # noqa: PLC0415

    given: dict[str, Any] = {"mask": mask, "preset": preset, "lr": lr, "epochs": epochs}
    given["feature_scale"] = feature_scale
    given = {name: value for name, value in given.items() if value is not None}
    goes_on = is_head_file(head)
    if option:
        given["options"] = _options(option)
    if seed is not None:
        given["random_state"] = seed
    if calibrate is not None:
        given["calibration"] = calibrate
    if out is None and not goes_on:
        raise OptionError("expected --out FILE: a new head needs a file to be saved to")
    place = room_for_head(Path(head), out, *files_of(features), force=force)
    if goes_on and (wrong := given.keys() - {"epochs", "calibration"}):
        raise OptionError(f"{head} keeps its settings: leave out {', '.join(sorted(wrong))}")
    found: Any = features
    outcome = "nothing was written"  # of a fit that Ctrl-C ends
    if sharded := goes_by_shards(features, head):
        folder = parts or place.with_name(f"{place.name}.parts")
        given |= {"rows": rows, "embedding": embedding, "label": label, "parts": folder}
        outcome = f"parts are in {folder}; rerun the same command to resume"
    else:
        found = read_rows(features, rows, embedding=embedding, label=label)
        given |= {} if parts is None else {"parts": parts}
    given |= {"broken": broken, "ray": ray}
    with stopping(outcome), bar(f"{features}, {head}", show=sharded, unit="rows") as tell:
        if goes_on:
            clf = update(Path(head), partial(train, found, **given, progress=tell), place)
        else:
            clf = train(found, head, **given, progress=tell)
            clf.save(place)
    if sharded and parts is None:  # not before the head is in its file
        rmtree(folder, ignore_errors=True)
    calibration = clf.head_.calibration
    held = calibration.rows if calibrate is not None and calibration is not None else 0
    on = clf.origin_[-1] if sharded else f"on {sum(len(part.z) for part in found) - held} rows"
    if not (goes_on or sharded or lr or feature_scale):
        print(_about_length(clf.head_, found[0].z), end="")
    did = f"trained {clf.head_.name}{' further' if goes_on else ''}"
    print(f"{did}{':' if sharded else ''} {on}; {count(len(clf.classes_), 'class')}")
    if calibration is not None:
        print(describe_calibration(calibration))
    print(f"wrote {place}: {place.stat().st_size:,} bytes")


def _about_length(head: Any, z: Any) -> str:
    """Return a note where the learning rate of a layer cannot suit the length of the features."""
    from lastlayer.advice.descent import NORM  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.heads.gradient.head import GradientHead  # noqa: PLC0415

    if not isinstance(head, GradientHead) or head.form.unit_input:
        return ""
    length = float(z[:10_000].double().square().sum(dim=1).mean().sqrt())
    if not length or NORM / FAR < length < NORM * FAR:
        return ""
    return (
        f"note: the features have a length of about {length:.2g}, and the learning rate of "
        f"{head.name} suits {NORM:.0f}: try --feature-scale {length / NORM:.2g}, or a head without "
        "gradient, such as slda\n"
    )


def _options(texts: list[str]) -> dict[str, Any]:
    """Read options of a head: k=7, prior=empirical, diagonal=true."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(f"expected an option as name=value, got '{text}'")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
