"""The verb that makes a features file from embeddings that you already have."""

from pathlib import Path
from typing import Annotated

import typer

from lastlayer.cli import options
from lastlayer.cli.app import DATA, app
from lastlayer.cli.out import prepare


@app.command("import", rich_help_panel=DATA)
def import_(
    file: Annotated[
        Path,
        typer.Argument(
            help="A .csv, .tsv, .parquet, .arrow, .feather, .jsonl, .npz, .npy, .safetensors or "
            ".pt file, or a folder saved by Hugging Face's datasets."
        ),
    ],
    out: options.FeaturesOut,
    embedding: options.Embedding = None,
    label: options.Label = None,
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
        typer.Option(
            help="File of the test set, or the share of each class to draw for it.  [0.2]"
        ),
    ] = None,
    validation: Annotated[Path | None, typer.Option(help="File of the validation set.")] = None,
    made_by: Annotated[
        str, typer.Option(help="Name of the backbone or text model that made the embeddings.")
    ] = "",
    seed: options.Seed = 0,
    force: options.Force = False,
) -> None:
    """Make a features file from embeddings that you already have; splits are kept."""
    from lastlayer.data.from_tables import import_features

    drawn = _number(test)
    read = [Path(name) for name in (file, validation, test if drawn is None else None) if name]
    prepare(out, *read, force=force)
    data = import_features(
        file,
        embedding,
        label,
        domain or (),
        split=split,
        test=test if drawn is None else drawn,
        validation=validation,
        seed=seed,
        made_by=made_by,
        say=print,
    )
    data.save(out)
    print(f"wrote {out}: {data}")


def _number(text: str | None) -> float | None:
    """Return the share to draw; None if the text is not a number but the name of a file."""
    try:
        return float(text or "")
    except ValueError:
        return None
