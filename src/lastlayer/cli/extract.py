"""The command that makes features from images or texts with a frozen network."""

from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from lastlayer.cli.app import DATA, app
from lastlayer.cli.out import Force, make_room
from lastlayer.errors import OptionError
from lastlayer.progress import bar

RayOption = Annotated[
    str | None, typer.Option(help="Work on a Ray cluster: its address, auto, or local.")
]


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
    out: Annotated[Path, typer.Option(help="The features file to write.")],
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
        float | None, typer.Option(help="Part of each class to draw as test, for a folder.  [0.2]")
    ] = None,
    thin: Annotated[int, typer.Option(help="Keep one in this many training images.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of random draws.")] = 0,
    broken: Annotated[
        str, typer.Option(help="What to do about a broken image: stop or skip.")
    ] = "stop",
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    precision: Annotated[str, typer.Option(help="full, or mixed on a GPU.")] = "full",
    batch_size: Annotated[
        int | None, typer.Option(help="Images in a batch; by default what suits the device.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that decode images; by default one per core, up to 8."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    column: Annotated[str | None, typer.Option(help="Column of texts, for text.")] = None,
    label: Annotated[str | None, typer.Option(help="Column to learn, for text.")] = None,
    domain: Annotated[
        list[str] | None, typer.Option(help="Further column to keep, for text; may be repeated.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Column that says train or test, for text.")
    ] = None,
    ray: RayOption = None,
    force: Force = False,
) -> None:
    """Compute features of images or texts with a frozen network; rerun to resume."""
    from lastlayer.features.extraction.named import extract_named  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.features.extraction.texts import extract_texts  # noqa: PLC0415

    make_room(out, *([weights] if weights else []), force=force)
    start = monotonic()
    of_texts = {"--column": column, "--label": label, "--domain": domain, "--split": split}
    of_images = {
        "--weights": weights,
        "--normalisation": normalisation,
        "--thin": thin if thin != 1 else None,
        "--workers": workers,
    }
    wrong = of_images if dataset == "text" else of_texts
    if given := [name for name, value in wrong.items() if value is not None]:
        raise OptionError(f"'extract {dataset}' takes no {', '.join(given)}")
    if dataset == "text":
        if column is None:
            raise OptionError("expected --column: the name of the column that holds the texts")
        make_room(out, root, force=force)
        with bar(f"{root} on {backbone}", unit="texts") as tell:
            data = extract_texts(
                root,
                column,
                label,
                backbone,
                out,
                domains=domain or (),
                split=split,
                test=test,
                seed=seed,
                dtype=dtype,
                batch_size=batch_size,
                device=device,
                ray=ray,
                progress=tell or (lambda done, total: None),
                say=print,
            )
        print(f"wrote {out}: {data}, in {monotonic() - start:.0f} s")
        return
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
            ray=ray,
            progress=tell,
        )
    print(f"wrote {out}: {data}, in {monotonic() - start:.0f} s")
