"""The page's part about networks trained end to end: its numbers, and that it stands by itself."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from lastlayer.replay.topic import since_learned
from lastlayer.report import write
from lastlayer.report.contents import all_sheets, make_sections, make_tables
from lastlayer.results import load_study as load
from lastlayer.results.store import Record, open_store

OF_REPLAY = ("replay", "projection_drift", "masking_gain")
NETWORK = {
    "kind": "network", "features": "cifar10 images", "scenario": "cifar10", "label": "class",
    "preset": "paper",
    "lr": 0.001, "epochs": 5, "per_class": 20, "batch_size": 8, "optimizer": "adam",
}  # fmt: skip
GAIN = {0.01: 0.25, 1.0: 0.125}  # of group masking
LOST = (  # by seed: a large share of little, and a small share of much
    {"lost": 4, "lost_share_weights": 0.5, "lost_share_interference": 0.0, "lost_share_drift": 0.5},
    {"lost": 12, "lost_share_weights": 0.5, "lost_share_interference": 0.25,
     "lost_share_drift": 0.25},
)  # fmt: skip
DRIFT = np.array([[0, 0, np.nan, np.nan], [10, 30, 0, 0]], dtype=np.float32)
TASKS = {  # after each of two epochs of tasks 1 and 0, of 20 test images each
    "right_by_task": np.array([[-1, -1], [0, 8], [0, 16], [10, 9], [12, 6]], dtype=np.int32),
    "n_per_task": np.array([20, 20]),
    "task_order": np.array([1, 0]),
}
ABOUT = {
    "names": {"class": list("abcd")}, "origin": {}, "n_train": 80, "n_test": 40, "in_features": 9,
}  # fmt: skip


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a study of 16 networks, of which one is still to be made."""
    folder = tmp_path_factory.mktemp("replay")
    wanted, records = {}, []
    for balance in (0.01, 1.0):
        for head in ("linear", "weight_norm"):
            for mask in ("none", "group"):
                for seed in (0, 1):
                    digest = f"{balance} {head} {mask} {seed}"
                    own = {"kind": "network", "balance": balance, "head": head, "mask": mask}
                    wanted[digest] = NETWORK | own | {"seed": seed, "order": seed}
                    final = 0.25 + 0.25 * balance + 0.125 * seed + (mask == "group") * GAIN[balance]
                    columns = {
                        "state": "done", "n_classes": 4, "n_tasks": 2, "final": final,
                        "images": int(100 + 100 * balance), "forgetting": 0.25, **LOST[seed],
                    }  # fmt: skip
                    drift = {f"drift_{name}": DRIFT for name in ("norm", "angle", "along")}
                    records.append(Record(digest, columns, drift | TASKS))
    with open_store(folder) as store:
        store.describe("# a plan\n", {"cifar10 images": ("f" * 64, ABOUT)}, version="1")
        store.plan(wanted)
        store.save(records[:-1])
    return folder


def test_the_tables_are_means_over_seeds(folder: Path) -> None:
    tables = make_tables(load(folder))
    row = tables["replay"].filter(balance=0.01, name="linear+group").row(0, named=True)
    assert row["mean"] == pytest.approx(100 * (0.25 + 0.0025 + 0.0625 + 0.25))
    assert row["deviation"] == pytest.approx(6.25)
    assert (row["runs"], row["images"], row["lost"]) == (2, 101, 20)
    assert (row["learned"], row["forgetting"]) == (70, 25)  # 16 and 12 of 20
    assert row["lost_share_drift"] == 37.5
    assert row["setting"].startswith("5 epochs a task, 20 remembered of a class")
    last = tables["replay"].row(-1, named=True)
    assert (last["name"], last["runs"], last["deviation"]) == ("weight_norm+group", 1, None)
    drift = tables["projection_drift"].filter(balance=0.01, name="linear", measure="angle")
    # One task after its own there are classes 0 and 1 only, turned by 10 and 30 degrees.
    assert dict(drift.select("tasks_ago", "mean").rows()) == {0: 0, 1: 20}
    moved = tables["projection_drift"].filter(balance=0.01, name="linear", measure="norm")
    assert moved["mean"].to_list() == [0, 2000]  # in percent


def test_the_gain_of_a_mask_is_paired_over_seeds(folder: Path) -> None:
    gains = make_tables(load(folder))["masking_gain"]
    assert gains["mask"].unique().to_list() == ["group"]
    rows = {(row["balance"], row["head"]): row for row in gains.iter_rows(named=True)}
    assert len(rows) == 4
    # Seeds differ by 12.5 points, but the gain within each is the same.
    of = rows[0.01, "linear"]
    assert [of[name] for name in ("mean", "low", "high")] == pytest.approx([25, 25, 25])
    assert (of["runs"], of["epochs"]) == (2, 5)
    alone = rows[1.0, "weight_norm"]  # its second pair is still to be made
    assert (alone["mean"], alone["low"], alone["runs"]) == (12.5, -np.inf, 1)


def test_options_of_training_are_in_the_setting(tmp_path: Path) -> None:
    columns = {"state": "done", "n_classes": 4, "n_tasks": 2, "final": 1.0}
    options = {"clip": 10.0, "start": "authors", "precision": "bfloat16"}
    with open_store(tmp_path) as store:
        store.describe("", {"cifar10 images": ("f" * 64, ABOUT)}, version="1")
        own = NETWORK | {"balance": 1.0, "head": "linear", "mask": "none", "seed": 0, "order": 0}
        store.plan({"usual": own, "other": own | options})
        store.save([Record("usual", columns), Record("other", columns)])
    settings = make_tables(load(tmp_path))["replay"]["setting"].to_list()
    plain = "5 epochs a task, 20 remembered of a class, batch 8, adam at 0.001"
    assert settings == [plain, f"{plain}, clipped at 10, the authors' starts, bfloat16"]


def test_what_was_lost_to_a_cause_is_found_network_by_network(folder: Path) -> None:
    tables = make_tables(load(folder))
    row = tables["replay"].filter(balance=0.01, name="linear").row(0, named=True)
    expected = {"weights": 10.0, "interference": 3.75, "drift": 6.25}  # % of 40; they sum to lost
    assert {cause: row[f"lost_to_{cause}"] for cause in expected} == expected
    (section,) = (s for s in make_sections(tables) if s.name == "replay")
    (figure,) = section.panels[1].figures
    bars = [
        bar for bar in figure.spec["datasets"]["rows"] if bar["where"] == "linear, balance 0.01"
    ]
    assert [bar["mean"] for bar in bars] == list(expected.values())
    assert [bar["share"] for bar in bars] == [50.0, 12.5, 37.5]


def test_where_nothing_was_lost_no_cause_has_a_part(tmp_path: Path) -> None:
    columns = {"state": "done", "n_classes": 4, "n_tasks": 2, "final": 1.0}
    with open_store(tmp_path) as store:
        store.describe("", {"cifar10 images": ("f" * 64, ABOUT)}, version="1")
        own = {"balance": 1.0, "head": "linear", "mask": "none"}
        store.plan({str(seed): NETWORK | own | {"seed": seed, "order": 0} for seed in (0, 1)})
        store.save([Record("0", columns | {"lost": 0}), Record("1", columns | LOST[1])])
    row = make_tables(load(tmp_path))["replay"].row(0, named=True)
    assert (row["lost"], row["lost_to_weights"], row["lost_share_weights"]) == (15, 7.5, 50)


def test_the_page_has_the_part_and_says_what_is_still_to_be_made(
    folder: Path, undrawn: None
) -> None:
    page = write(folder)
    text = page.read_text(encoding="utf-8")
    assert "End to end with replay" in text
    assert "1 of 16 runs are still to be made" in text
    names = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert {
        "replay-balance-cifar10-images-cifar10",
        "replay-images-cifar10-images-cifar10",
        "replay-causes-cifar10-images-cifar10",
        "replay-drift-angle-0-01-cifar10-images-cifar10",
    } <= names
    assert {f"{sheet.name}.csv" for sheet in all_sheets()} <= {
        path.name for path in (folder / "tables").iterdir()
    }
    assert all(path.read_text().isascii() for path in (folder / "tables").glob("*.tex"))


def test_settings_that_differ_are_told_apart(folder: Path) -> None:
    tables = make_tables(load(folder))
    other = {
        name: pl.concat(
            [tables[name], tables[name].with_columns(pl.lit("10 epochs").alias("setting"))]
        )
        for name in OF_REPLAY
    }
    (section,) = (s for s in make_sections(tables | other) if s.name == "replay")
    titles = [figure.title for figure in section.panels[0].figures]
    assert len(set(titles)) == 4
    assert any("10 epochs" in title for title in titles)


def test_titles_say_in_what_settings_differ(folder: Path) -> None:
    tables = make_tables(load(folder))
    more = pl.col("setting").str.replace("5 epochs", "50 epochs") + ", bfloat16"
    other = {name: pl.concat([tables[name], tables[name].with_columns(more)]) for name in OF_REPLAY}
    (section,) = (s for s in make_sections(tables | other) if s.name == "replay")
    titles = {figure.title for figure in section.panels[1].figures}
    stream = "cifar10 images, cifar10"
    assert titles == {f"{stream}, 5 epochs a task", f"{stream}, 50 epochs a task, bfloat16"}


@pytest.mark.parametrize(("lowest", "kind"), [(0.01, "log"), (0.0, "linear")])
def test_a_balance_of_0_has_a_place_on_the_axis(folder: Path, lowest: float, kind: str) -> None:
    tables = dict(make_tables(load(folder)))
    balance = pl.col("balance").replace(0.01, lowest)
    tables["replay"] = tables["replay"].with_columns(balance)
    (section,) = (s for s in make_sections(tables) if s.name == "replay")
    axes = {
        layer["encoding"]["x"]["scale"]["type"]
        for layer in section.panels[0].figures[0].spec["layer"]
    }
    assert axes == {kind}


def test_tasks_are_counted_also_where_nothing_could_be_measured() -> None:
    unknown = np.array([[0.0], [np.nan], [90.0]])  # all features of the class were zero
    assert list(since_learned(unknown)) == [(0, 0.0), (2, 90.0)]


def test_a_study_of_heads_has_no_such_part(folder: Path) -> None:
    tables = make_tables(load(folder))
    without = {name: table for name, table in tables.items() if name not in OF_REPLAY}
    assert "replay" not in [section.name for section in make_sections(without)]
