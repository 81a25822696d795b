"""Networks trained end to end beside heads in one file: kept apart, and tabled."""

from pathlib import Path

import pytest
from test_store import DONE, RUN

from lastlayer.results import load_study
from lastlayer.results.store import Record, open_store
from lastlayer.results.tables import replay_accuracy

NETWORK = RUN | {
    "kind": "network", "features": "cifar10 images", "head": "linear", "mask": "none",
    "balance": 0.1, "epochs": 5, "per_class": 20, "batch_size": 8, "optimizer": "adam",
}  # fmt: skip
SHARES = {"lost_share_weights": 0.25, "lost_share_interference": 0.5, "lost_share_drift": 0.25}


def keep(folder: Path, *networks: dict[str, object]) -> None:
    with open_store(folder) as store:
        wanted = {f"n{i}": NETWORK | network for i, network in enumerate(networks)}
        finals = {digest: columns.pop("final") for digest, columns in wanted.items()}
        store.plan(wanted | {"head": RUN})
        done = {"state": "done", "n_classes": 4, "n_tasks": 3, "images": 300, "lost": 8, **SHARES}
        store.save([Record(d, done | {"final": final}) for d, final in finals.items()])
        store.save([Record("head", DONE)])


def test_heads_and_networks_are_kept_apart(tmp_path: Path) -> None:
    keep(tmp_path, {"final": 0.5}, {"final": 0.75, "seed": 1})
    study = load_study(tmp_path)
    assert study.runs["digest"].to_list() == study.done["digest"].to_list() == ["head"]
    assert study.replay["digest"].to_list() == ["n0", "n1"]
    assert study.replay["images"].to_list() == [300, 300]
    assert not {"balance", "images", "lost_share_drift"} & set(study.runs.columns)
    assert not {"subset", "lost_to_weights"} & set(study.replay.columns)


def test_accuracy_against_balance(tmp_path: Path) -> None:
    keep(
        tmp_path,
        {"balance": 1.0, "final": 0.75},
        {"final": 0.5},
        {"final": 0.25, "seed": 1},
        {"final": 0.75, "mask": "group"},
        {"final": None, "seed": 2},
    )
    table = replay_accuracy(load_study(tmp_path).replay)
    assert table["balance"].to_list() == [0.1, 0.1, 1.0]
    assert table["mask"].to_list() == ["none", "group", "none"]
    assert table["mean"].to_list() == pytest.approx([0.375, 0.75, 0.75])
    assert table["deviation"].to_list() == [pytest.approx(0.125), None, None]  # one has none
    assert table["runs"].to_list() == [3, 1, 1]
    assert table["lost_share_interference"].to_list() == pytest.approx([0.5] * 3)
