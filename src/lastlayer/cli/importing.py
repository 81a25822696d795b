"""The command that makes a features file from embeddings that you already have."""

from pathlib import Path
from typing import Annotated

import typer

from lastlayer.cli.app import DATA, app
from lastlayer.cli.out import Force, make_room


@app.command("import", rich_help_panel=DATA)
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="A .csv, .tsv, .parquet, .arrow, .feather, .jsonl, .npz, .npy, .safetensors or "
            ".pt file, or a folder saved by Hugging Face's datasets."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The features file to write.")],
    embedding: Annotated[
        str | None,
        typer.Option(
            help="Column of embeddings, or columns by prefix ('z_*') or range (z_0:z_383). "
            "Not needed if there is only one."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Column to learn; not needed if it is called y, label or target."),
    ] = None,
    domain: Annotated[
        list[str] | None, typer.Option(help="Further column to keep as labels; may be repeated.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="Column that says train, validation or test; not needed if it is called split."
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(help="File of the test set, or the part of each class to draw for it.  [0.2]"),
    ] = None,
    validation: Annotated[Path | None, typer.Option(help="File of the validation set.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of that draw.")] = 0,
    force: Force = False,
) -> None:
    """Make a features file from embeddings that you already have; splits are kept."""
    from lastlayer.features.importing import import_features  # noqa: PLC0415  (keeps --help quick)

    drawn = _number(test)
    read = [Path(name) for name in (file, validation, test if drawn is None else None) if name]
    make_room(out, *read, force=force)
    data = import_features(
        file,
        embedding,
        label,
        domain or (),
        split=split,
        test=test if drawn is None else drawn,
        validation=validation,
        seed=seed,
        say=print,
    )
    data.save(out)
    print(f"wrote {out}: {data}")


def _number(text: str | None) -> float | None:
    """Return the part to draw; None if the text is not a number but the name of a file."""
    try:
        return float(text or "")
    except ValueError:
        return None
