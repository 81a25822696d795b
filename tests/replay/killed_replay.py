"""Kills a study of networks at random moments, in processes of its own; run by its test."""

import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from killing import KILLS, fork, kill
from lastlayer.study.conduct import conduct
from lastlayer.study.prepare import prepare
from small_replay import plan_of, small_root

torch.set_num_threads(1)


def start(folder: Path, root: Path) -> int:
    def do() -> None:
        conduct(prepare(plan_of(), folder, root), "text", folder, version="1", device="cpu")

    return fork(do)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    images = small_root(root / "cifar", pytest.MonkeyPatch())
    killed = kill(root, partial(start, root=images), kills=KILLS // 5, after=(1 / 8, 1 / 2))
    print(killed)  # noqa: T201  (read by the test)
