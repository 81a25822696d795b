"""The command line: thin, one function per command."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lastlayer.errors import LastLayerError

app = typer.Typer(
    help="Output layers for frozen networks whose data keeps changing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _lastlayer() -> None:
    """Keep every command a subcommand, however many there are."""


@app.command()
def extract(
    dataset: Annotated[str, typer.Argument(help="cifar10 or cifar100.")],
    root: Annotated[Path, typer.Option(help="Folder with the data set's official files.")],
    backbone: Annotated[str, typer.Option(help="resnet20-cifar10 or resnet20-cifar100.")],
    out: Annotated[Path, typer.Option(help="The features file to write.")],
    weights: Annotated[Path | None, typer.Option(help="File of the backbone's weights.")] = None,
    normalisation: Annotated[
        str, typer.Option(help="authors: as in the study; trained: as the backbone was trained.")
    ] = "authors",
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    batch_size: Annotated[int, typer.Option(help="Images in one go.")] = 500,
) -> None:
    """Compute the features of a data set's images on a frozen backbone."""
    from rich.progress import Progress  # noqa: PLC0415  (keeps --help quick)

    from lastlayer.features.extraction import extract as compute  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
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


def main() -> None:
    """Run the command line; what goes wrong is said in one line, without a traceback."""
    try:
        app()
    except (LastLayerError, OSError) as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, highlight=False)
        sys.exit(1)
