"""The verb that writes files for other programs: a study's table, or a head as ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from lastlayer.cli import options
from lastlayer.cli.app import USE, app
from lastlayer.cli.out import prepare, say_written, write_table
from lastlayer.cli.text import count
from lastlayer.errors import OptionError


@app.command(rich_help_panel=USE)
def export(
    source: Annotated[
        Path, typer.Argument(help="The file of a head, or the folder that 'lastlayer run' wrote.")
    ],
    file: Annotated[
        Path,
        typer.Argument(help="The file to write: .onnx for a head, .csv or .parquet for a folder."),
    ],
    unknown: Annotated[
        float | None,
        typer.Option(help="ONNX: label strange inputs -1, and at most this share of known ones."),
    ] = None,
    float64: Annotated[
        bool,
        typer.Option("--float64", help="ONNX: take and compute in float64 instead of float32."),
    ] = False,
    force: options.Force = False,
) -> None:
    """Write a head as ONNX, for a service to run; or a table of all finished runs of a study."""
    if file.suffix.lower() == ".onnx":
        _export_head(source, file, unknown, float64, force)
    elif unknown is not None or float64:
        raise OptionError(f"--unknown and --float64 are for an .onnx file, got {file}")
    else:
        _export_table(source, file, force)


def _export_head(
    source: Path, file: Path, unknown: float | None, float64: bool, force: bool
) -> None:
    import torch

    from lastlayer.estimator import HeadClassifier
    from lastlayer.heads.onnx_file import OPSET

    if source.is_dir():
        raise OptionError(f"ONNX is made of the file of a head, got the folder {source}")
    prepare(file, source, force=force, option="the file to write")
    clf = HeadClassifier.load(source)
    clf.export_onnx(file, unknown, torch.float64 if float64 else torch.float32)
    head, kind = clf.head_, "float64" if float64 else "float32"
    print(f"{head.name}: {count(head.n_classes, 'class')}, {kind}, opset {OPSET}")
    sure = "calibrated" if head.calibration is not None else "not calibrated"
    strange = "every input gets a class" if unknown is None else "unknown inputs get class -1"
    print(f"probabilities are {sure}; {strange}")
    say_written(file)


def _export_table(folder: Path, file: Path, force: bool) -> None:
    import polars as pl

    from lastlayer.results import load_study
    from lastlayer.results.columns import KINDS

    if file.suffix not in (".csv", ".parquet"):
        raise OptionError(f"the file to write must end in .onnx, .csv or .parquet, got {file}")
    prepare(file, force=force)
    study = load_study(folder)
    tables = [study.done, study.replay.filter(state="done")]
    kinds = [t.with_columns(kind=pl.lit(k)) for k, t in zip(KINDS, tables, strict=True)]
    done = pl.concat([table for table in kinds if table.height] or kinds[:1], how="diagonal")
    done = done.drop("state", "message")
    write_table(done, file)
    print(f"{count(done.height, 'run')} in {file}")
