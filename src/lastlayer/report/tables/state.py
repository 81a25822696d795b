"""What a study is about and how far it has come."""

from collections.abc import Mapping

import polars as pl

from lastlayer.report.tables.select import in_order
from lastlayer.results import Study

STATES = ("done", "planned", "failed")


def about(study: Study) -> pl.DataFrame:
    """Give what is known of the study as a whole: its plan, its version, and the counts of runs."""
    known = dict(study.about)
    runs = _all_runs(study)
    known |= {f"runs_{state}": str(runs.filter(state=state).height) for state in STATES}
    known["runs_diverged"] = str(runs.filter(state="done")["diverged"].count())
    return pl.DataFrame(
        list(known.items()), schema={"what": pl.String, "value": pl.String}, orient="row"
    )


def data(study: Study) -> pl.DataFrame:
    """Describe each feature set."""
    sizes = dict.fromkeys(("train_samples", "test_samples", "in_features"), pl.Int64)
    texts = dict.fromkeys(("classes", "fingerprint"), pl.String)
    schema = {"features": pl.String, **sizes, **texts}
    rows = [
        (name, d.n_train, d.n_test, d.in_features, _classes(d.names), d.fingerprint)
        for name, d in study.data.items()
    ]
    return pl.DataFrame(rows, schema=schema, orient="row").sort("features")


def _classes(names: Mapping[str, list[str]]) -> str:
    return ", ".join(f"{label}: {len(classes)}" for label, classes in names.items())


def troubles(study: Study) -> pl.DataFrame:
    """Name the runs that failed, diverged or are still to be made; like ones together."""
    what = (
        pl.when(pl.col("state") == "failed")
        .then(pl.lit("failed: ") + pl.col("message").fill_null("no reason given"))
        .when(pl.col("state") == "planned")
        .then(pl.lit("not run yet"))
        .when(pl.col("diverged").is_not_null())
        .then(pl.lit("diverged: training left the finite numbers"))
        .alias("trouble")
    )
    cell = ("features", "scenario", "preset", "head", "mask", "lr", "trouble")
    table = _all_runs(study).with_columns(what).drop_nulls("trouble")
    found = table.group_by(cell).agg(pl.len().cast(pl.Int64).alias("runs"))
    return in_order(found, "trouble", "features", "scenario", "preset", "head", "mask", "lr")


def _all_runs(study: Study) -> pl.DataFrame:
    """Give heads and networks; of these the replay balance takes the place of the preset."""
    balance = pl.format("balance {}", "balance").alias("preset")
    return pl.concat([study.runs, study.replay.with_columns(balance)], how="diagonal")
