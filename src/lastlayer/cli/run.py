"""The main command: a plan in, one results file and a page out."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from lastlayer import __version__
from lastlayer.cli.app import STUDY, app
from lastlayer.cli.export import say_what_is_unverified
from lastlayer.cli.study import Device
from lastlayer.cli.text import columns, count, percent, spread
from lastlayer.cli.view import View
from lastlayer.errors import OptionError, PlanError
from lastlayer.progress import duration

if TYPE_CHECKING:
    import polars as pl

    from lastlayer.study.prepare import Prepared


@app.command(rich_help_panel=STUDY)
def run(
    plan: Annotated[
        str,
        typer.Argument(help="quick, demo, paper, replay (lastlayer list plans), or a TOML file."),
    ] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; by default runs/PLAN.")
    ] = None,
    features_dir: Annotated[
        Path,
        typer.Option(help="Folder with features that are not bundled, stored by their full names."),
    ] = Path("features"),
    features: Annotated[str | None, typer.Option(hidden=True)] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            help="Folder with a data set's official files, for networks trained end to end."
        ),
    ] = None,
    device: Device = "auto",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would run and how long it would take, then stop."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, and nothing else.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for another run in the same folder to finish.")
    ] = False,
) -> None:
    """Run a study: every head in every order, saved as it goes; rerun to resume."""
    # Networks that train at once on a GPU need it, before PyTorch first uses one (docs/replay.md).
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    from lastlayer.study.conduct import Watch, conduct  # noqa: PLC0415  (keeps --help quick)
    from lastlayer.study.heads.execute import choose_device  # noqa: PLC0415
    from lastlayer.study.plan import read_plan  # noqa: PLC0415
    from lastlayer.study.prepare import prepare  # noqa: PLC0415

    if features is not None:
        raise OptionError(
            f"--features is not an option here: pass the folder with --features-dir {features}"
        )
    folder = out or Path("runs") / Path(plan).stem
    choose_device(device)
    content, text = read_plan(plan)
    try:
        ready = prepare(content, features_dir, root)
    except PlanError as error:
        raise PlanError(f"{plan}: {error}") from error
    if not as_json:
        _say_what_is_missing(ready)
    if dry_run:
        _forecast(ready, folder, device, as_json)
        return
    with View(quiet=quiet or as_json) as view:
        _end_on_signals(view, folder)
        watch = Watch(view.start, view.progress, view.take, view.wait)
        conduct(ready, text, folder, version=__version__, device=device, wait=wait, watch=watch)
    _summarise(ready, folder, view, as_json, _write_page(folder, quiet or as_json))


def _say_what_is_missing(ready: "Prepared") -> None:
    for reason in ready.missing.values():
        print(f"left out: {reason}")


def _forecast(ready: "Prepared", folder: Path, device: str, as_json: bool) -> None:
    """Print what would run, and roughly how long it would take."""
    from lastlayer.study.forecast import forecast  # noqa: PLC0415

    rows = forecast(ready, folder, device)
    runs, left = sum(row.runs for row in rows), sum(row.left for row in rows)
    seconds = sum(row.seconds for row in rows)
    if as_json:
        summary = {"folder": str(folder), "runs": runs, "to_make": left, "seconds": round(seconds)}
        print(json.dumps(summary | {"missing": ready.missing}, ensure_ascii=False, indent=2))
        return
    title = ("features", "scenario", "setting", "runs", "to do", "time")
    table = (
        (*r[:3], str(r.runs), str(r.left), duration(r.seconds) if r.left else "") for r in rows
    )
    print(columns([title, *table]))
    time = f", in {duration(seconds)}" if left else ""
    print(f"{count(runs, 'run')}, {left} to do{time}; results in {folder}")


def _end_on_signals(view: View, folder: Path) -> None:
    """Let Ctrl-C and SIGTERM stop the study at once: saved results need nothing more."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        view.close()
        kept = f"{view.kept} of {count(view.planned, 'run')} saved in {folder}"
        said = f"stopped: {kept}; rerun the same command to resume"
        print(said if view.planned else "stopped before it began", file=sys.stderr, flush=True)
        os._exit(128 + number)  # heads are still in training, in threads that nobody waits for

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _write_page(folder: Path, quiet: bool) -> Path:
    from lastlayer.report import write  # noqa: PLC0415

    if not quiet:
        print("drawing the page", file=sys.stderr)
    return write(folder)


def _summarise(ready: "Prepared", folder: Path, view: View, as_json: bool, page: Path) -> None:
    from lastlayer.results import load_study  # noqa: PLC0415
    from lastlayer.results.tables import (  # noqa: PLC0415
        best_heads,
        head_name,
        replay_accuracy,
    )

    study = load_study(folder)
    best = best_heads(study.done)
    networks = replay_accuracy(study.replay.filter(state="done")).with_columns(head_name())
    others = len({*study.runs["digest"], *study.replay["digest"]} - ready.runs.keys())
    if as_json:
        summary = {
            "folder": str(folder),
            "report": str(page),
            "runs": view.planned,
            "kept": view.kept,
            "others": others,
            "failed": view.failed,
            "missing": ready.missing,
            "unverified": study.about.get("unverified"),
            "best": best.to_dicts(),
            "replay": networks.to_dicts(),
        }
        print(json.dumps(summary, ensure_ascii=False, indent=2))
        return
    if best.height:
        print(columns(_best(best)))
    if networks.height:
        print(columns(_networks(networks)))
    if view.failed:
        reasons = study.runs.filter(state="failed")["message"].unique(maintain_order=True)
        print(f"{count(view.failed, 'run')} failed: {'; '.join(reasons)}")
    print(f"{view.kept} of {count(view.planned, 'run')} in {folder}; open {page}")
    if others:
        left = count(others, "run")
        print(f"also in the folder and on the page: {left} of other plans (--out separates them)")
    say_what_is_unverified(study)


def _best(best: "pl.DataFrame") -> Iterator[tuple[str, ...]]:
    yield "features", "scenario", "preset", "samples", "best head", "final accuracy in %"
    for row in best.iter_rows(named=True):
        accuracy = spread(*(percent(row[name]) for name in ("mean", "deviation")))
        what = (row[name] for name in ("features", "scenario", "preset"))
        yield *what, str(row["subset"] or "all"), row["head"], accuracy


def _networks(networks: "pl.DataFrame") -> Iterator[tuple[str, ...]]:
    from lastlayer.study.networks.run import setting_of  # noqa: PLC0415
    from lastlayer.training.replay import ReplayRules, TrainingOptions  # noqa: PLC0415

    yield "features", "scenario", "setting", "layer", "images", "final accuracy in %"
    for row in networks.iter_rows(named=True):
        mean, deviation = (percent(row[name]) for name in ("mean", "deviation"))
        accuracy = "diverged" if mean is None else spread(mean, deviation)
        rules = ReplayRules(**{rule.name: row[rule.name] for rule in fields(ReplayRules)})
        kept = {name: row[name] for name in ("clip", "start", "precision") if row[name] is not None}
        setting = setting_of(row["balance"], rules, TrainingOptions(**kept))
        what = row["features"], row["scenario"], setting, row["head"]
        yield *what, f"{row['images']:,.0f}", accuracy
