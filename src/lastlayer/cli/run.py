"""The verb of the main job: a plan in, one results file and a page out; a live view meanwhile."""

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from math import isfinite
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lastlayer.cli import options
from lastlayer.cli.app import STUDY, app, stopping
from lastlayer.cli.text import columns, count, spread
from lastlayer.core.progress import Bar, duration
from lastlayer.core.version import __version__
from lastlayer.errors import PlanError

if TYPE_CHECKING:
    import polars as pl

    from lastlayer.results import Study
    from lastlayer.study import Outcome
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
    root: Annotated[
        Path | None,
        typer.Option(
            help="Folder with a data set's official files, for networks trained end to end."
        ),
    ] = None,
    device: options.Device = "auto",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would run and how long it would take, then stop."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: options.Json = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for another run in the same folder to finish.")
    ] = False,
) -> None:
    """Run a study: every head in every order, saved as it goes; rerun to resume."""
    # Networks that train at once on a GPU need it, before PyTorch first uses one (docs/replay.md).
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    from lastlayer.core.devices import choose_device
    from lastlayer.report import write
    from lastlayer.results import load_study
    from lastlayer.study.conduct import Callbacks, conduct
    from lastlayer.study.plan_file import read_plan
    from lastlayer.study.prepare import prepare

    folder = out or Path("runs") / Path(plan).stem
    choose_device(device)
    content, text = read_plan(plan)
    try:
        ready = prepare(content, features_dir, root)
    except PlanError as error:
        raise PlanError(f"{plan}: {error}") from error
    for reason in () if as_json else ready.missing.values():
        print(f"left out: {reason}")
    if dry_run:
        _forecast(ready, folder, device, as_json)
        return
    view = View(quiet=quiet or as_json)
    with stopping(lambda: _saved(view, folder), at_once=True):
        with view:
            on = Callbacks(view.start, view.progress, view.take, view.wait)
            how: dict[str, Any] = {"device": device, "wait": wait, "callbacks": on}
            conduct(ready, text, folder, version=__version__, **how)
        study = load_study(folder)
        if not (quiet or as_json):
            print("drawing the page", file=sys.stderr)
        page = write(folder, study)
    _summarise(ready, study, view, as_json, page)


def _saved(view: "View", folder: Path) -> str:
    view.close()
    if not view.planned:
        return "nothing had begun"
    kept = f"{view.kept} of {count(view.planned, 'run')} saved in {folder}"
    return f"{kept}; rerun the same command to resume"


def _forecast(ready: "Prepared", folder: Path, device: str, as_json: bool) -> None:
    """Print what would run, and roughly how long it would take."""
    from lastlayer.study.conduct import forecast

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


def _summarise(ready: "Prepared", study: "Study", view: "View", as_json: bool, page: Path) -> None:
    from lastlayer.results.tables import best_heads, head_name, replay_accuracy

    folder = page.parent
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


def _best(best: "pl.DataFrame") -> Iterator[tuple[str, ...]]:
    yield "features", "scenario", "preset", "samples", "best head", "final accuracy in %"
    for row in best.iter_rows(named=True):
        accuracy = spread(row["mean"], row["deviation"])
        what = (row[name] for name in ("features", "scenario", "preset"))
        yield *what, str(row["subset"] or "all"), row["head"], accuracy


def _networks(networks: "pl.DataFrame") -> Iterator[tuple[str, ...]]:
    from lastlayer.replay.study.network_run import setting_of
    from lastlayer.replay.training import ReplayRules, TrainingOptions

    yield "features", "scenario", "setting", "layer", "images", "final accuracy in %"
    for row in networks.iter_rows(named=True):
        accuracy = spread(row["mean"], row["deviation"]) or "diverged"
        rules = ReplayRules(**{rule.name: row[rule.name] for rule in fields(ReplayRules)})
        kept = {name: row[name] for name in ("clip", "start", "precision") if row[name] is not None}
        setting = setting_of(row["balance"], rules, TrainingOptions(**kept))
        what = row["features"], row["scenario"], setting, row["head"]
        yield *what, f"{row['images']:,.0f}", accuracy


class View:
    """Counts runs as they are saved, and draws them on stderr; with ``quiet`` it only counts."""

    def __init__(self, quiet: bool) -> None:
        self.planned = self.kept = self.failed = 0
        self._finals: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._console = Console(stderr=True, highlight=False, quiet=quiet, markup=False)
        self._bar = Bar(console=self._console)
        self._live = Live(console=self._console, get_renderable=self._draw, transient=True)
        self._live_wanted = self._console.is_terminal and not quiet

    def __enter__(self) -> Self:
        if self._live_wanted:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the screen as it was."""
        if self._live_wanted:
            self._live.stop()

    def start(self, planned: int, kept: int) -> None:
        """Record how many runs there are, and how many of them are done."""
        self.planned, self.kept = planned, kept
        known = f", {kept} of them already done" if kept else ""
        self._console.print(f"{count(planned, 'run')}{known}")

    def progress(self, done: float, total: float) -> None:
        """Record the work done; called from any thread."""
        self._bar.title = f"{self.kept} of {count(self.planned, 'run')}"
        self._bar(done, total)

    def take(self, outcomes: "list[Outcome]") -> None:
        """Record the runs that were saved, and those that failed."""
        from lastlayer.study import Result

        for outcome in outcomes:
            if isinstance(outcome, Result):
                self.kept += 1
                # A head that diverged is no candidate.
                if isfinite(outcome.final):
                    run = outcome.run
                    self._finals[run.place][run.candidate].append(outcome.final)
            else:
                self.failed += 1

    def wait(self) -> None:
        """Print that another process is writing."""
        self._console.print("another process is writing there: waiting for it to finish")

    def _draw(self) -> Group:
        best = Table("made now", "best head so far", "accuracy", box=None)
        for scenario, heads in list(self._finals.items())[-12:]:
            head, finals = max(list(heads.items()), key=lambda item: fmean(item[1]))
            best.add_row(Text(scenario), Text(head), f"{100 * fmean(finals):.1f} %")
        return Group(self._bar.drawn, best)
