"""The verb that chooses which rows to label next."""

from pathlib import Path
from typing import Annotated

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app, stopping
from lastlayer.cli.out import prepare_table, write_table
from lastlayer.core.progress import bar


@app.command("next", rich_help_panel=USE)
@stopping("nothing was written")
def next_(
    head: Annotated[
        str, typer.Argument(help="The file of a head, or 'none' if there is no head yet.")
    ],
    pool: Annotated[
        str, typer.Argument(help="Rows without labels, in any form that predict takes.")
    ],
    count: Annotated[int, typer.Option(help="How many rows to choose.")],
    out: options.TableOut,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="informative (the default: unsure and unlike one another), margin (the least "
            "sure), random, or coverage (the default without a head: typical of the pool)."
        ),
    ] = None,
    rows: options.Rows = "all",
    embedding: options.Embedding = None,
    id_: options.Id = None,
    seed: options.Seed = 0,
    accept_features: options.AcceptFeatures = False,
    force: options.Force = False,
) -> None:
    """Choose which rows of a pool to label next, so that a head learns most from them."""
    from lastlayer.estimator import fitting
    from lastlayer.labels import next_rows

    file = None if head == "none" else Path(head)
    read = [*fitting.files_of(pool), *([] if file is None else [file])]
    prepare_table(out, *read, force=force)
    with bar(pool, unit="rows") as tell:
        chosen = next_rows(
            file, pool, count, strategy=strategy, rows=rows, embedding=embedding, id=id_,
            seed=seed, accept_features=accept_features, progress=tell,
        )  # fmt: skip
    write_table(chosen, out)
    print(f"wrote {out}: {chosen.height} rows to label, the most useful first")
    if file is not None:
        print("'label' is the head's own guess, 'margin' how sure it is, from 0 to 1")
