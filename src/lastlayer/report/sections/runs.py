"""What was run: data, state of the runs, and the plan."""

from lastlayer.report.drift import title_of
from lastlayer.report.looks import name_of
from lastlayer.report.section import Row, Section, Tables
from lastlayer.report.shown import Cell, Table, number, short, words

STATES = ("done", "planned", "failed", "diverged")


def known(tables: Tables) -> dict[str, str]:
    """Give what is known of the study as a whole."""
    return dict(tables["about"].rows())


def notices(tables: Tables, version: str) -> list[str]:
    """Say in words what a reader must know before anything else.

    Args:
        tables: of the study.
        version: of the lastlayer that makes the page.
    """
    about = known(tables)
    done, planned, failed, diverged = (int(about.get(f"runs_{state}", "0")) for state in STATES)
    made = about.get("version", version)
    notes = {
        "This study is empty: nothing was planned, so there is nothing to show.": not (
            done + planned + failed
        ),
        f"This study is in progress: {planned} of {_runs(done + planned + failed)} are still to be "
        "made. The page shows what is there.": planned,
        f"{_runs(failed)} failed; the reasons are under “What was run”.": failed,
        f"{_runs(diverged)} diverged: training left the finite numbers. They have no accuracy and "
        "are in no average.": diverged,
        f"The study was run by lastlayer {made}, this page was made by lastlayer {version}.": made
        != version,
    }
    return [note for note, holds in notes.items() if holds]


def runs(tables: Tables) -> Section:
    """Name the data, the troubles, and how many runs there are."""
    about = known(tables)
    text = f"{_runs(int(about.get('runs_done', '0')))} finished."
    shown = [_data(tables)] if tables["data"].height else []
    if tables["troubles"].height:
        shown.append(_troubles(tables))
    return Section("runs", "What was run", [text], (), shown)


def _runs(n: int) -> str:
    return "1 run" if n == 1 else f"{n} runs"


def _data(tables: Tables) -> Table:
    sizes = ("train_samples", "test_samples", "in_features")
    rows = [
        [words(row["features"]), *(number(row[size], digits=0) for size in sizes),
         words(row["classes"]), words(row["fingerprint"][:12])]
        for row in tables["data"].iter_rows(named=True)
    ]  # fmt: skip
    counts = ("training samples", "test samples", "features per sample")
    header = ("features", *counts, "classes", "fingerprint")
    return Table("data", "The data.", header, rows)


def _troubles(tables: Tables) -> Table:
    rows = [_trouble(row) for row in tables["troubles"].iter_rows(named=True)]
    header = ("stream", "preset", "head", "learning rate", "runs", "what happened")
    return Table("troubles", "Runs that are not in the averages.", header, rows)


def _trouble(row: Row) -> list[Cell]:
    rate = short(row["lr"])
    where = words(title_of(row["features"], row["scenario"]))
    head = words(name_of(row["head"], row["mask"]))
    return [where, words(row["preset"]), head, rate, number(row["runs"], 0), words(row["trouble"])]
