"""Commands that make features: of embeddings, and of images."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lastlayer.cli.app import app
from lastlayer.cli.out import make_room


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A .npz or .parquet file.")],
    embedding: Annotated[str, typer.Option(help="Column of embeddings.")],
    label: Annotated[str, typer.Option(help="Column to learn.")],
    out: Annotated[Path, typer.Option(help="The features file to write.")],
    domain: Annotated[
        list[str] | None, typer.Option(help="Further column to keep as labels; may be repeated.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Column that says train or test.")] = None,
    test: Annotated[
        float | None, typer.Option(help="Part of each class to draw as test, instead.  [0.2]")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides that draw.")] = 0,
) -> None:
    """Make a features file of embeddings that you have already."""
    from lastlayer.features.importing import import_features  # noqa: PLC0415

    make_room(out)
    data = import_features(file, embedding, label, domain or (), split=split, test=test, seed=seed)
    data.save(out)
    print(f"wrote {out}: {data}")


@app.command()
def extract(
    dataset: Annotated[str, typer.Argument(help="cifar10 or cifar100.")],
    root: Annotated[Path, typer.Option(help="Folder with the data set's official files.")],
    backbone: Annotated[str, typer.Option(help="resnet20-cifar10 or resnet20-cifar100.")],
    out: Annotated[Path, typer.Option(help="The features file to write.")],
    weights: Annotated[
        Path | None,
        typer.Option(
            help="File of the backbone's weights, always needed: see lastlayer list backbones."
        ),
    ] = None,
    normalisation: Annotated[
        str, typer.Option(help="authors: as in the study; trained: as the backbone was trained.")
    ] = "authors",
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    batch_size: Annotated[int, typer.Option(help="Images in one go.")] = 500,
) -> None:
    """Compute the features of a data set's images on a frozen backbone."""
    from rich.progress import Progress  # noqa: PLC0415  (keeps --help quick)

    from lastlayer.features.extraction import extract as compute  # noqa: PLC0415

    make_room(out)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{dataset} on {backbone}")
        data = compute(
            dataset,
            root,
            backbone,
            weights,
            normalisation=normalisation,
            batch_size=batch_size,
            dtype=dtype,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    data.save(out)
    print(f"wrote {out}: {data}")
