"""A study of networks that takes no time: few images in CIFAR10's layout, and a tiny backbone."""

from pathlib import Path

import pytest
from tests import fake_cifar
from tests.small_images import SmallNet

from lastlayer.replay.study import train_networks
from lastlayer.study.plan_file import Plan

BLOCK = {
    "dataset": "cifar10", "scenario": "incremental:3", "heads": ["linear", "weight_norm+group"],
    "balance": [0.1, 1.0], "per_class": 5, "epochs": 3, "lr": 0.05,
}  # fmt: skip


def small_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write 60 training images of 3 classes and 12 test images, and take the tiny backbone."""
    fake_cifar.write(folder, monkeypatch, "cifar10", "binary", n=12)
    monkeypatch.setattr(train_networks, "backbone", SmallNet)
    return folder


def plan_of(seeds: str = "0-1", **changes: object) -> Plan:
    return Plan.model_validate({"preset": "paper", "seeds": seeds, "replay": [BLOCK | changes]})
