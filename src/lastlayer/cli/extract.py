"""The verb that makes features from images or texts with a frozen network."""

from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer

from lastlayer.cli import options
from lastlayer.cli.app import DATA, app, stopping
from lastlayer.cli.out import prepare
from lastlayer.core.progress import bar
from lastlayer.errors import OptionError


@app.command(rich_help_panel=DATA)
def extract(
    dataset: Annotated[
        str,
        typer.Argument(
            help="'folder' for your own images, 'text' for your own texts, or a name from "
            "'lastlayer list datasets'."
        ),
    ],
    root: Annotated[
        Path, typer.Option(help="Folder with the data set's files, or the table of texts.")
    ],
    backbone: Annotated[
        str,
        typer.Option(
            help="timm:NAME for any timm model, st:NAME_OR_FOLDER for texts, or: lastlayer list "
            "backbones."
        ),
    ],
    out: options.FeaturesOut,
    weights: Annotated[
        Path | None,
        typer.Option(help="File of weights, .safetensors or a state dict; downloaded by default."),
    ] = None,
    normalisation: Annotated[
        str | None,
        typer.Option(
            help="authors: images as in the study (default); trained: as the backbone was trained."
        ),
    ] = None,
    test: Annotated[
        float | None, typer.Option(help="Share of each class to draw as test, for a folder.  [0.2]")
    ] = None,
    thin: Annotated[int, typer.Option(help="Keep one in this many training images.")] = 1,
    seed: options.Seed = 0,
    broken: options.Broken = "stop",
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    precision: Annotated[str, typer.Option(help="full, or mixed on a GPU.")] = "full",
    batch_size: Annotated[
        int | None, typer.Option(help="Images in a batch; by default what suits the device.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that decode images; by default one per core, up to 8."),
    ] = None,
    device: options.Device = "auto",
    column: Annotated[str | None, typer.Option(help="Column of texts, for text.")] = None,
    label: Annotated[str | None, typer.Option(help="Column to learn, for text.")] = None,
    domain: Annotated[
        list[str] | None, typer.Option(help="Further column to keep, for text; may be repeated.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Column that says train or test, for text.")
    ] = None,
    ray: options.Ray = None,
    force: options.Force = False,
) -> None:
    """Compute features of images or texts with a frozen network; rerun to resume."""
    from lastlayer.extraction.from_images import extract_named
    from lastlayer.extraction.from_texts import extract_texts

    start, texts = monotonic(), dataset == "text"
    prepare(out, *([weights] if weights else []), *([root] if texts else []), force=force)
    of_texts = {"--column": column, "--label": label, "--domain": domain, "--split": split}
    of_images = {
        "--weights": weights,
        "--normalisation": normalisation,
        "--thin": thin if thin != 1 else None,
        "--workers": workers,
    }
    wrong = of_images if texts else of_texts
    if given := [name for name, value in wrong.items() if value is not None]:
        raise OptionError(f"'extract {dataset}' takes no {', '.join(given)}")
    how: dict[str, Any] = {"test": test, "seed": seed, "dtype": dtype, "batch_size": batch_size}
    how |= {"device": device, "ray": ray}
    title, unit = f"{root if texts else dataset} on {backbone}", "texts" if texts else "images"
    with stopping("rerun the same command to resume"), bar(title, unit=unit) as tell:
        if texts:
            if column is None:
                raise OptionError("--column is missing: the name of the column of texts")
            how |= {"domains": domain or (), "split": split, "say": print}
            data = extract_texts(root, column, label, backbone, out, **how, progress=tell)
        else:
            how |= {"weights": weights, "normalisation": normalisation, "thin": thin}
            how |= {"precision": precision, "broken": broken, "workers": workers}
            data = extract_named(dataset, root, backbone, out, **how, progress=tell)
    print(f"wrote {out}: {data}, in {monotonic() - start:.0f} s")
