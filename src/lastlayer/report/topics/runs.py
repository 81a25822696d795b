"""What was run: data, state of the runs, and the plan."""

import polars as pl

from lastlayer.catalogue.head_cards import full_name
from lastlayer.report.data_names import data_name, title_of
from lastlayer.report.section import Section, Tables, Topic
from lastlayer.report.select import in_order
from lastlayer.report.sheet import Sheet, clean, integers, numbers, rows_as, texts
from lastlayer.report.table import Table, number, short, words
from lastlayer.results import Study

STATES = ("done", "planned", "failed", "diverged")
SIZES = ("train_samples", "test_samples", "in_features")
NAMED = 3  # data sets in a title, at most
ABOUT = texts("what", "value")
DATA = texts("features") | integers(*SIZES) | texts("classes", "fingerprint")
REFERENCE = texts("features", "label") | numbers("mean")
PLACE = texts("features", "scenario", "preset", "head", "mask") | numbers("lr") | texts("trouble")


def about(study: Study) -> pl.DataFrame:
    """Return what is known of the study as a whole: plan, version, and the counts of runs."""
    known = {clean(name): clean(value) for name, value in study.about.items()}
    runs = _all_runs(study)
    known |= {f"runs_{state}": str(runs.filter(state=state).height) for state in STATES[:3]}
    known["runs_diverged"] = str(runs.filter(state="done")["diverged"].count())
    return rows_as(ABOUT, known.items())


def data(study: Study) -> pl.DataFrame:
    """Describe each feature set."""
    rows = []
    for name, d in study.data.items():
        classes = clean(", ".join(f"{label}: {len(names)}" for label, names in d.names.items()))
        rows.append((name, d.n_train, d.n_test, d.in_features, classes, d.fingerprint))
    return rows_as(DATA, rows).sort("features")


def references(study: Study) -> pl.DataFrame:
    """Return what a softmax regression reaches on everything at once; earlier studies have none."""
    rows = (
        (name, label, 100 * accuracy)
        for name, d in study.data.items()
        for label, accuracy in d.references.items()
    )
    return rows_as(REFERENCE, rows).sort("features", "label")


def troubles(study: Study) -> pl.DataFrame:
    """Name the runs that failed, diverged or are still to be made; like ones together."""
    what = (
        pl.when(pl.col("state") == "failed")
        .then(pl.lit("failed: ") + pl.col("message").fill_null("no reason given"))
        .when(pl.col("state") == "planned")
        .then(pl.lit("not run yet"))
        .when(pl.col("diverged").is_not_null())
        .then(pl.lit("diverged: training produced NaN or infinity"))
        .alias("trouble")
    )
    table = _all_runs(study).with_columns(what).drop_nulls("trouble")
    found = table.group_by(PLACE.keys()).agg(pl.len().cast(pl.Int64).alias("runs"))
    return in_order(found, "trouble", "features", "scenario", "preset", "head", "mask", "lr")


def _all_runs(study: Study) -> pl.DataFrame:
    """Return heads and networks; of these the replay balance takes the place of the preset."""
    balance = pl.format("balance {}", "balance").alias("preset")
    return pl.concat([study.runs, study.replay.with_columns(balance)], how="diagonal")


SHEET = Sheet("about", ABOUT, about)
SETS = Sheet("data", DATA, data)
REFERENCES = Sheet("references", REFERENCE, references)
TROUBLES = Sheet("troubles", PLACE | integers("runs"), troubles)


def known(tables: Tables) -> dict[str, str]:
    """Return what is known of the study as a whole; nothing where no sheet says it."""
    return dict(tables["about"].rows()) if "about" in tables else {}


def title(tables: Tables) -> str:
    """Return what the page is called: by its data, and by nothing that only its maker knows."""
    sheets = (tables[name] for name in ("data", "accuracy", "iid", "replay") if name in tables)
    features = next((table["features"] for table in sheets if table.height), None)
    if features is None:
        return "Which output layer"
    names = dict.fromkeys(map(_set_of, features.unique().sort()))
    if len(names) > NAMED:
        return f"Which output layer for {len(names)} data sets"
    *most, last = names
    return f"Which output layer for {', '.join(most)}{' and ' if most else ''}{last}"


def _set_of(features: str) -> str:
    """Return the data set alone, without backbone and held-out share."""
    return data_name(features).partition(" (")[0].partition("/")[0] or features


def notices(tables: Tables, version: str) -> list[str]:
    """Say in words what a reader must know before anything else, made by that version."""
    about = known(tables)
    if not about:
        return []
    done, planned, failed, diverged = _counts(tables)
    made = about.get("version", version)
    notes = {
        "This study is empty: nothing was planned, so there is nothing to show.": not (
            done + planned + failed
        ),
        f"This study is in progress: {planned} of {_runs(done + planned + failed)} are still to be "
        "made. The page shows what is there.": planned,
        f"{_runs(failed)} failed; the reasons are under “What was run”.": failed,
        f"{_runs(diverged)} diverged: training produced NaN or infinity. They have no accuracy and "
        "are in no average.": diverged,
        f"The study was run by lastlayer {made}, this page was made by lastlayer {version}.": made
        != version,
    }
    return [note for note, holds in notes.items() if holds]


def section(tables: Tables) -> Section:
    """Name the data, the troubles, and how many runs there are."""
    text = f"{_runs(_counts(tables)[0])} finished."
    shown = [_data(tables)] if tables["data"].height else []
    if tables["troubles"].height:
        shown.append(_troubles(tables))
    return Section("runs", "What was run", [text], (), shown)


TOPIC = Topic(section, needs=[SHEET], also=[SETS, TROUBLES])


def _counts(tables: Tables) -> list[int]:
    """Return how many runs are in each of STATES."""
    about = known(tables)
    return [int(about.get(f"runs_{state}", "0")) for state in STATES]


def _runs(n: int) -> str:
    return "1 run" if n == 1 else f"{n} runs"


def _data(tables: Tables) -> Table:
    rows = [
        [words(data_name(row["features"])), *(number(row[size], digits=0) for size in SIZES),
         words(row["classes"]), words(row["fingerprint"][:12])]
        for row in tables["data"].iter_rows(named=True)
    ]  # fmt: skip
    counts = ("training samples", "test samples", "features per sample")
    header = ("features", *counts, "classes", "fingerprint")
    return Table(("data",), "The data.", header, rows)


def _troubles(tables: Tables) -> Table:
    rows = [
        [words(title_of(row["features"], row["scenario"])), words(row["preset"]),
         words(full_name(row["head"], row["mask"])), short(row["lr"]), number(row["runs"], 0),
         words(row["trouble"])]
        for row in tables["troubles"].iter_rows(named=True)
    ]  # fmt: skip
    header = ("stream", "preset", "head", "learning rate", "runs", "what happened")
    return Table(("troubles",), "Runs that are not in the averages.", header, rows)
