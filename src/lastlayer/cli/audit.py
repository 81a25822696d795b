"""The verb that finds wrong labels."""

from pathlib import Path
from typing import Annotated

import typer

from lastlayer.cli import options
from lastlayer.cli.app import DATA, app, stopping
from lastlayer.cli.out import prepare, prepare_table, write_table
from lastlayer.core.progress import bar
from lastlayer.errors import OptionError

DIGITS = 6  # of a probability in the table


@app.command(rich_help_panel=DATA)
@stopping("nothing was written")
def audit(
    features: options.Features,
    out: Annotated[
        Path | None, typer.Option(help="The .csv or .parquet file to write the suspects to.")
    ] = None,
    label: options.Label = None,
    embedding: options.Embedding = None,
    rows: Annotated[
        str, typer.Option(help="The split to audit: train, validation or test.")
    ] = "train",
    head: Annotated[
        str,
        typer.Option(
            help="mean, slda, ridge, qda, random_ridge, random_slda, kernel_ridge or knn."
        ),
    ] = "slda",
    option: options.HeadOption = None,
    id_: options.Id = None,
    show: Annotated[
        str | None,
        typer.Option(help="Column of paths of pictures, addresses or texts, for the page."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            help="Write this many rows, the worst first; by default, those that are more probably "
            "wrong than right."
        ),
    ] = None,
    score: Annotated[
        str,
        typer.Option(
            help="How rows are ranked: noise (how probable it is that the label is wrong), "
            "confidence (how improbable the label is) or margin (how much more probable another "
            "label is)."
        ),
    ] = "noise",
    seed: options.Seed = 0,
    page: options.Page = None,
    force: options.Force = False,
) -> None:
    """Find labels that the other rows contradict, and say how many are wrong. Changes nothing."""
    import polars as pl

    from lastlayer.estimator import fitting
    from lastlayer.labels import audit as find

    read = fitting.files_of(features)
    if out is not None:
        prepare_table(out, *read, force=force)
    if page is not None:
        prepare(page, *read, force=force, option="--page")
    if out is not None and page is not None and out.resolve() == page.resolve():
        raise OptionError(f"--out and --page must be two files, got {out} for both")
    if count is not None and count < 1:
        raise OptionError(f"--count must be at least 1, got {count}")
    if count is not None and out is None:
        raise OptionError("--count says how many rows to write: give --out too")
    with bar(f"{features}, {head}", unit="rows") as tell:
        found = find(
            features,
            head,
            rows=rows,
            embedding=embedding,
            label=label,
            id=id_,
            show=show,
            score=score,
            seed=seed,
            progress=tell,
            **options.of_head(option),
        )
    for sentence in found.sentences:
        print(sentence)
    for warning in found.warnings:
        print(f"note: {warning}")
    if out is not None:
        suspects = found.suspects if count is None else found.worst(count)
        write_table(suspects.with_columns(pl.col("score", "wrong").round(DIGITS)), out)
        print(f"wrote {out}: {suspects.height} rows")
    if page is not None:
        found.page(page)
        print(f"wrote {page}")
