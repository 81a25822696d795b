"""A study that version 0.1 began and did not end: version_0_1.sqlite, and what it was made of.

``write`` lays out the plan, the features and the images, all without a random generator of torch,
so that their fingerprints stay. The file was made with lastlayer 0.1.0 (``git checkout`` of the
commit before catalogue.py came), from this plan, by

    conduct(prepare(plan, Path("features"), Path("cifar")), text, Path("out"), version="0.1.0",
            device="cpu", watch=Watch(on_kept=stop))

where ``stop`` raises as soon as the network "linear" with balance 1 is kept: the last network is
planned, and all else is done. results.sqlite was then copied here as it lay.
"""

from pathlib import Path

import pytest
import torch
from tests.study.small_replay import small_root

from lastlayer.features import Features

FILE = Path(__file__).with_name("version_0_1.sqlite")
PLAN = """preset = "paper"
seeds = "0-1"

[[experiment]]
features = "small.safetensors"
scenario = "incremental:3"
heads = ["linear", "weight_norm+group", "mean", "knn"]

[[replay]]
dataset = "cifar10"
scenario = "incremental:3"
heads = ["linear", "weight_norm+group"]
balance = [0.1, 1.0]
seeds = 0
per_class = 5
epochs = 1
lr = 0.05
"""


def write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write plan.toml, small.safetensors and the folder cifar."""
    (folder / "plan.toml").write_text(PLAN)
    n = torch.arange(90)
    steps = enumerate((7, 11, 13, 17))
    z = torch.stack([(n * step % 31).float() + 8 * (n % 6 == c) for c, step in steps], 1)
    data = Features.from_arrays(z, n % 6, test=(z[:30] + 1, n[:30] % 6))
    data.save(folder / "small.safetensors")
    small_root(folder / "cifar", monkeypatch)
