"""Every table equals what an independent look into the store finds."""

import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from lastlayer.report.contents import all_sheets, make_sections, make_tables
from lastlayer.results import load_study as load
from lastlayer.results.store import Record, open_store
from made_up import ALL, CIFAR100, HUNDRED, LAYERS, PAPER, Stream, iid, write_study

Tables = dict[str, pl.DataFrame]
LAYERS_AND_MASKS = [name for name in ALL if name.partition("+")[0] in LAYERS]


class Store:
    """The store, read by hand."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.sqlite"

    def ask(self, query: str, *values: object) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return connection.execute(query, values).fetchall()

    def runs(self, **where: Any) -> list[dict[str, Any]]:
        rows = map(dict, self.ask("SELECT * FROM run WHERE state = 'done'"))
        return [row for row in rows if all(row[name] == value for name, value in where.items())]

    def array(self, run: dict[str, Any], name: str) -> np.ndarray:
        query = "SELECT type, shape, content FROM array WHERE run = ? AND name = ?"
        ((kind, shape, content),) = self.ask(query, run["id"], name)
        return np.frombuffer(zlib.decompress(content), kind).reshape(json.loads(shape))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("paper"), [*PAPER, HUNDRED])


@pytest.fixture(scope="module")
def store(study: Path) -> Store:
    return Store(study)


@pytest.fixture(scope="module")
def tables(study: Path) -> Tables:
    return make_tables(load(study))


def test_no_table_of_the_paper_is_empty(tables: Tables) -> None:
    empty = [name for name, table in tables.items() if table.is_empty()]
    assert empty == ["references", "starts", "troubles"]


def test_final_accuracy_is_the_mean_over_orders(tables: Tables, store: Store) -> None:
    assert tables["accuracy"].height == 19 + 3 + 19 + 19
    for row in tables["accuracy"].iter_rows(named=True):
        assert row["preset"] == "paper"
        same = ("features", "scenario", "head", "mask", "preset", "lr")
        finals = [run["final"] for run in store.runs(**{name: row[name] for name in same})]
        assert row["runs"] == len(finals) == 3
        assert row["mean"] == pytest.approx(100 * np.mean(finals))
        assert row["deviation"] == pytest.approx(100 * np.std(finals))


def test_curves_are_counts_of_right_answers(tables: Tables, store: Store) -> None:
    for scenario, points in (("cifar10", 11), ("cifar100_mix", 101)):
        runs = store.runs(scenario=scenario, head="cosine", mask="single", preset="paper")
        right = np.stack([store.array(run, "right_by_class").sum(axis=1) for run in runs])
        total = store.array(runs[0], "n_per_class").sum()
        if scenario == "cifar100_mix":  # so long a stream is shown task by task
            right = right[:, ::2]
        curve = tables["curves"].filter(scenario=scenario, name="cosine+single")
        assert curve.height == points
        np.testing.assert_allclose(curve["mean"], 100 * right.mean(axis=0) / total)
        np.testing.assert_allclose(curve["deviation"], 100 * right.std(axis=0) / total)


def test_masks_are_averaged_over_layers(tables: Tables, store: Store) -> None:
    runs = store.runs(scenario="cifar100_lifelong", mask="group")
    row = tables["by_mask"].filter(kind="lifelong", mask="group").row(0, named=True)
    mean, deviation = row["mean"], row["deviation"]
    orders = [[run["final"] for run in runs if run["order"] == order] for order in range(3)]
    assert len(runs) == 15
    assert mean == pytest.approx(100 * np.mean(orders))
    assert deviation == pytest.approx(100 * np.std(np.mean(orders, axis=1)))


def test_masks_are_averaged_within_one_start(tmp_path: Path) -> None:
    study = [Stream(heads=LAYERS_AND_MASKS, start=start) for start in ("uniform", "normal")]
    folder = write_study(tmp_path, study)
    tables = make_tables(load(folder))
    found = tables["by_mask"].select("start", "mask", "mean").rows()
    assert [row[:2] for row in found] == [
        (start, mask) for start in ("normal", "uniform") for mask in ("none", "group", "single")
    ]
    runs = load(folder).done
    for start, mask, mean in found:
        mine = runs.filter(pl.col("start").is_null() | (pl.col("start") == start), mask=mask)
        assert mean == pytest.approx(100 * mine["final"].mean())
    # Both starts of each head that has two stand side by side; the charts show the first.
    ways = tables["starts"].select("name", "way", "mean").rows()
    assert len(ways) == 2 * 3 * 3
    for name, way, mean in ways:
        head, _, mask = name.partition("+")
        mine = runs.filter(head=head, mask=mask or "none", start=way)
        assert mean == pytest.approx(100 * mine["final"].mean())
    shown = dict(tables["accuracy"].select("name", "mean").rows())
    assert all(shown[name] == mean for name, way, mean in ways if way == "uniform")
    (section,) = (s for s in make_sections(tables) if s.name == "masks")
    titles = [figure.title for figure in section.panels[0].figures]
    assert titles == [f"Masks, averaged over layers, {s} start" for s in ("uniform", "normal")]


def test_an_average_is_over_the_streams_that_have_all_heads(tables: Tables) -> None:
    row = tables["by_kind"].filter(kind="incremental", name="slda").row(0, named=True)
    assert row["over"] == "cifar10, resnet20-cifar100"  # cifar100 has three heads only


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_lists_of_heads_one_is_averaged_whatever_came_first(
    tmp_path: Path, first: int
) -> None:
    many = [Stream("incremental:2", f"f{n}", heads=("knn", "mean"), orders=(0,)) for n in range(9)]
    many += [Stream("incremental:2", f"g{n}", heads=("knn", "slda"), orders=(0,)) for n in range(9)]
    streams = many[::-1] if first else many
    table = make_tables(load(write_study(tmp_path, streams)))["by_kind"]
    assert table["name"].to_list() == ["knn", "slda"]
    assert table["over"][0].startswith("g0, ")


def test_averages_over_two_streams(tmp_path: Path) -> None:
    streams = (Stream(heads=("slda",)), Stream("cub200", "cub200/resnet18", heads=("slda",)))
    table = make_tables(load(write_study(tmp_path, streams)))["by_kind"]
    finals = np.array([run["final"] for run in Store(tmp_path).runs()]).reshape(2, 3)
    row = table.row(0, named=True)
    assert row["mean"] == pytest.approx(100 * finals.mean())
    assert row["deviation"] == pytest.approx(100 * finals.mean(axis=0).std())
    assert row["over"] == "cifar10, resnet20-cifar100; cub200, resnet18"


def test_subsets_are_averaged_over_data_sets(tables: Tables, store: Store) -> None:
    runs = store.runs(head="knn", subset=100)
    row = tables["subset_average"].filter(name="knn", subset=100).row(0, named=True)
    assert row["mean"] == pytest.approx(100 * np.mean([run["final"] for run in runs]))
    assert row["runs"] == len(runs) == 6
    assert row["over"] == f"cifar10/resnet20-cifar100, class; {CIFAR100}, coarse"
    assert row["published_mean"] is not None


def test_published_numbers_stand_beside_ours(tables: Tables) -> None:
    row = tables["iid"].filter(features="cifar10/resnet20-cifar100", name="slda").filter(
        pl.col("subset").is_null()
    )  # fmt: skip
    assert row["published_mean"].to_list() == [66.90]
    assert row["verdict"].to_list() == ["differs"]  # ours is made up


def test_learning_rates_and_backbones_are_selected(tables: Tables, store: Store) -> None:
    rates = tables["learning_rates"].filter(head="cosine")
    assert rates["lr"].to_list() == [0.01, 0.1]
    same = {"head": "cosine", "mask": "none", "n_tasks": 1, "subset": None, "n_classes": 10}
    finals = [[run["final"] for run in store.runs(**same, lr=lr)] for lr in (0.01, 0.1)]
    expected = [100 * np.mean(each) for each in finals]
    np.testing.assert_allclose(rates["mean"], expected)
    assert rates["best"].to_list() == [expected[0] > expected[1], expected[1] > expected[0]]
    assert tables["backbones"]["features"].to_list() == [
        "cifar10/resnet20-cifar10",
        "cifar10/resnet20-cifar100",
    ]


@pytest.mark.parametrize(
    ("features", "datasets", "compared"),
    [
        (("/a/x.safetensors", "/b/y.safetensors"), ("", ""), False),
        (("mine/x.safetensors", "mine/y.safetensors"), ("birds", "dogs"), False),
        (("x.safetensors", "/b/y.safetensors"), ("birds", "birds"), True),
    ],
)
def test_backbones_are_compared_on_the_same_data_only(
    tmp_path: Path, features: tuple[str, ...], datasets: tuple[str, ...], compared: bool
) -> None:
    streams = [
        iid(name, "class", 4, heads=("mean",), dataset=dataset)
        for name, dataset in zip(features, datasets, strict=True)
    ]
    table = make_tables(load(write_study(tmp_path, streams)))["backbones"]
    assert sorted(table["features"]) == (sorted(features) if compared else [])
    assert set(table["data"]) == ({"birds"} if compared else set())


def test_norms_are_those_after_the_last_task(tables: Tables, store: Store) -> None:
    (run,) = store.runs(scenario="cifar10", head="linear", mask="none", order=0, preset="paper")
    part = tables["norms"].filter(scenario="cifar10")
    norm, bias = store.array(run, "norm"), store.array(run, "bias")
    np.testing.assert_allclose(part["norm"], norm[-1])
    np.testing.assert_allclose(part["bias_change"], bias[-1] - bias[-2])
    assert part["tasks_ago"].to_list() == [4, 4, 3, 3, 2, 2, 1, 1, 0, 0]
    lifelong = tables["norms"].filter(kind="lifelong")
    assert lifelong["tasks_ago"].count() == 0


def test_when_a_class_came_is_what_is_stored(tmp_path: Path) -> None:
    """Order 0 of the made-up study: classes 0 and 1 first. What is stored says otherwise."""
    folder = write_study(tmp_path, [Stream(heads=("linear",), orders=(0,))])
    study = load(folder)
    digest = study.runs["digest"][0]
    arrays = {name: study.arrays(name)[digest] for name in study.array_names()}
    arrived = np.array([4, 3, 3, 2, 2, 1, 1, 0, 0, -1])
    with open_store(folder) as store:
        store.save([Record(digest, {"state": "done"}, arrays | {"arrived": arrived})])
    ago = make_tables(load(folder))["norms"]["tasks_ago"].to_list()
    assert ago == [0, 1, 1, 2, 2, 3, 3, 4, 4, None]


def test_weight_change_is_of_the_papers_task(tables: Tables, store: Store) -> None:
    (run,) = store.runs(scenario="cifar100_mix", head="linear", mask="single", order=0)
    weight = store.array(run, "weight")
    part = tables["weight_changes"].filter(mask="single")
    assert set(part["task"]) == {46}  # counted from 1: it is number 45 from 0
    np.testing.assert_allclose(
        part["change"].to_numpy().reshape(20, -1), weight[45] - weight[44], rtol=1e-6
    )


def test_maps_and_riskiest_pairs(tables: Tables, store: Store) -> None:
    (run,) = store.runs(scenario="cifar10", head="weight_norm", mask="none", order=0)
    angles = store.array(run, "data_angles")[-1].astype(float)
    risk = np.diag(angles)[:, None] / angles
    part = tables["interference"].filter(scenario="cifar10", head="weight_norm")
    np.testing.assert_allclose(part["risk"].to_numpy().reshape(10, 10), risk)
    np.testing.assert_allclose(part["to_data"].to_numpy().reshape(10, 10), angles)
    off = np.where(np.eye(10, dtype=bool), 0, risk)
    first = tables["riskiest_pairs"].filter(scenario="cifar10", head="weight_norm")
    assert first.height == 10
    assert first["risk"][0] == pytest.approx(off.max())
    assert (first["class"][0], first["vector"][0]) == np.unravel_index(off.argmax(), off.shape)


def test_a_map_of_many_classes_shows_those_in_danger(tables: Tables) -> None:
    part = tables["interference"].filter(scenario="cifar100", head="linear")
    assert part["class"].n_unique() == 50
    pairs = tables["riskiest_pairs"].filter(scenario="cifar100", head="linear")
    assert pairs["class"][0] in set(part["class"])


def test_first_task_since_it_was_learned(tables: Tables, store: Store) -> None:
    runs = store.runs(scenario="cifar100_lifelong", head="mean")
    right = [store.array(run, "right_by_task") for run in runs]
    first = [store.array(run, "task_order")[0] for run in runs]
    accuracy = np.stack([r[2:, task] / 80 for r, task in zip(right, first, strict=True)])
    part = tables["first_task"].filter(name="mean")
    np.testing.assert_allclose(part["mean"], 100 * accuracy.mean(axis=0))
    assert part["learned"].to_list() == [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5]


def test_repairs_are_shares_of_the_test_set(tables: Tables, store: Store) -> None:
    runs = store.runs(scenario="cifar10", head="slda", preset="paper")
    part = dict(
        tables["repairs"].filter(scenario="cifar10", name="slda").select("what", "mean").rows()
    )
    assert len(part) == 10
    for name, mean in part.items():
        assert mean == pytest.approx(100 * np.mean([run[name] for run in runs]) / 200)


def test_presets_stand_side_by_side(tables: Tables, store: Store) -> None:
    assert tables["presets"]["name"].to_list() == ["linear", "slda"]
    runs = [
        store.runs(scenario="cifar10", head="slda", preset=preset) for preset in ("paper", "exact")
    ]
    means = [100 * np.mean([run["final"] for run in part]) for part in runs]
    row = tables["presets"].filter(name="slda").row(0, named=True)
    assert row["difference"] == pytest.approx(means[1] - means[0])


def test_a_head_at_several_rates_is_shown_at_its_own(tmp_path: Path) -> None:
    stream = Stream(heads=("linear", "cosine"), lrs=(0.1, 0.01, 0.001))
    table = make_tables(load(write_study(tmp_path, [stream])))["accuracy"]
    assert dict(table.select("head", "lr").rows()) == {"linear": 0.01, "cosine": 0.1}


def test_a_head_without_its_own_rate_is_shown_at_its_best(tmp_path: Path) -> None:
    stream = Stream(heads=("cosine",), lrs=(0.01, 0.001))
    table = make_tables(load(write_study(tmp_path, [stream])))["accuracy"]
    finals = {
        lr: np.mean([run["final"] for run in Store(tmp_path).runs(lr=lr)]) for lr in (0.01, 0.001)
    }
    assert table["lr"].to_list() == [max(finals, key=finals.__getitem__)]


def test_diverged_runs_are_in_no_average(tmp_path: Path) -> None:
    lifelong = Stream("cifar100_lifelong", CIFAR100, "coarse", 20, 5, ("linear",), diverged=(1,))
    extra = {"forward_transfer": 0.5}  # it needs no accuracy after the last task
    gone = Stream(heads=("linear",), orders=(1,), diverged=(1,), extra=extra)
    kept = Stream(heads=("linear",), orders=(0, 2), extra={"forward_transfer": 0.25})
    table = make_tables(load(write_study(tmp_path, [lifelong, gone, kept])))
    row = table["accuracy"].filter(scenario="cifar10").row(0, named=True)
    assert (row["runs"], row["diverged"], row["forward_transfer"]) == (2, 1, 25)
    for name in ("curves", "first_task"):
        assert set(table[name]["runs"]) == {2}, name
    assert "diverged" in table["troubles"]["trouble"][0]


def test_one_run_has_no_deviation(tmp_path: Path) -> None:
    streams = [Stream(heads=("linear",), orders=(0,)), iid("mine", "class", 4, orders=(0,))]
    tables = make_tables(load(write_study(tmp_path, streams)))
    for name in ("accuracy", "curves", "by_kind", "repairs", "iid"):
        assert tables[name].height, name
        assert tables[name]["deviation"].count() == 0, name


def test_tables_are_read_as_they_were_written(tables: Tables) -> None:
    for sheet in all_sheets():
        if sheet.name in tables:
            table = tables[sheet.name]
            again = sheet.read(sheet.write(table), sheet.name)
            assert again is not None
            assert again.schema == table.schema == pl.Schema(sheet.columns), sheet.name
            rounded = table.with_columns(pl.col(pl.Float64).round_sig_figs(6))
            assert again.equals(rounded), sheet.name
