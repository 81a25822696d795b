"""The command that writes files for other programs: a study's table, or a head as ONNX."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastlayer.cli.app import USE, app
from lastlayer.cli.out import make_room, write_table
from lastlayer.cli.text import count
from lastlayer.errors import OptionError

if TYPE_CHECKING:
    from lastlayer.results import Study


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
) -> None:
    """Write a head as ONNX, for a service to run; or a table of all finished runs of a study."""
    if file.suffix.lower() == ".onnx":
        _export_head(source, file, unknown, float64)
    elif unknown is not None or float64:
        raise OptionError(f"expected an .onnx file with --unknown and --float64, got {file}")
    else:
        _export_table(source, file)


def _export_head(source: Path, file: Path, unknown: float | None, float64: bool) -> None:
    import torch  # noqa: PLC0415  (keeps --help quick)

    from lastlayer.estimator import HeadClassifier  # noqa: PLC0415
    from lastlayer.heads.onnx_file import OPSET  # noqa: PLC0415

    if source.is_dir():
        raise OptionError(f"expected the file of a head to write as ONNX, got the folder {source}")
    make_room(file, source, option="the file to write")
    clf = HeadClassifier.load(source)
    clf.export_onnx(file, unknown, torch.float64 if float64 else torch.float32)
    head, kind = clf.head_, "float64" if float64 else "float32"
    print(f"{head.name}: {count(head.n_classes, 'class')}, {kind}, opset {OPSET}")
    sure = "calibrated" if head.calibration is not None else "not calibrated"
    strange = "every input gets a class" if unknown is None else "unknown inputs get class -1"
    print(f"probabilities are {sure}; {strange}")
    print(f"wrote {file}: {file.stat().st_size:,} bytes")


def _export_table(folder: Path, file: Path) -> None:
    import polars as pl  # noqa: PLC0415  (keeps --help quick)

    from lastlayer.results import load_study  # noqa: PLC0415
    from lastlayer.results.columns import KINDS  # noqa: PLC0415

    if file.suffix not in (".csv", ".parquet"):
        raise OptionError(f"expected a .csv or .parquet file to write, or an .onnx one, got {file}")
    make_room(file)
    study = load_study(folder)
    tables = [study.done, study.replay.filter(state="done")]
    kinds = [t.with_columns(kind=pl.lit(k)) for k, t in zip(KINDS, tables, strict=True)]
    done = pl.concat([table for table in kinds if table.height] or kinds[:1], how="diagonal")
    done = done.drop("state", "message")
    write_table(done, file)
    print(f"{count(done.height, 'run')} in {file}")
    say_what_is_unverified(study)


def say_what_is_unverified(study: "Study") -> None:
    """Print which results were written before they could be verified."""
    from lastlayer.results.seal import UNVERIFIED  # noqa: PLC0415

    if UNVERIFIED in study.about:
        print(f"unverified: {study.about[UNVERIFIED]}")
