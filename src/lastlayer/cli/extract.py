"""The command that makes features of images, or of texts, on a frozen network."""

from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from lastlayer.cli.app import DATA, app
from lastlayer.cli.out import make_room
from lastlayer.progress import bar


@app.command(rich_help_panel=DATA)
def extract(
    dataset: Annotated[
        str, typer.Argument(help="folder for your own images, or: lastlayer list datasets.")
    ],
    root: Annotated[Path, typer.Option(help="Folder with the data set's files.")],
    backbone: Annotated[
        str, typer.Option(help="timm:NAME for any model of timm, or: lastlayer list backbones.")
    ],
    out: Annotated[Path, typer.Option(help="The features file to write.")],
    weights: Annotated[
        Path | None,
        typer.Option(help="File of weights, .safetensors or a state dict; else downloaded."),
    ] = None,
    normalisation: Annotated[
        str | None,
        typer.Option(
            help="authors: images as in the study, the usual; trained: as the backbone was trained."
        ),
    ] = None,
    test: Annotated[
        float | None, typer.Option(help="Part of each class to draw as test, for a folder.  [0.2]")
    ] = None,
    thin: Annotated[int, typer.Option(help="Keep one in so many training images.")] = 1,
    seed: Annotated[int, typer.Option(help="Decides what is drawn.")] = 0,
    broken: Annotated[str, typer.Option(help="stop or skip, at a broken image.")] = "stop",
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    precision: Annotated[str, typer.Option(help="full, or mixed on a GPU.")] = "full",
    batch_size: Annotated[
        int | None, typer.Option(help="Images in one go; else what suits the device.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that decode images; else one per core, up to 8.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Compute the features of images on a frozen backbone; run again, it goes on where it was."""
    from lastlayer.features.extraction.named import extract_named  # noqa: PLC0415  (keeps --help quick)

    make_room(out, *([weights] if weights else []))
    start = monotonic()
    with bar(f"{dataset} on {backbone}", unit="images") as tell:
        data = extract_named(
            dataset,
            root,
            backbone,
            out,
            weights=weights,
            normalisation=normalisation,
            test=test,
            thin=thin,
            seed=seed,
            dtype=dtype,
            precision=precision,
            broken=broken,
            batch_size=batch_size,
            workers=workers,
            device=device,
            progress=tell,
        )
    print(f"wrote {out}: {data}, in {monotonic() - start:.0f} s")
