"""Kills a study of networks at random moments, in processes of its own; run by its test."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from killing import KILLS, kill
from small_replay import plan_of, small_root

from lastlayer.study.conduct import conduct
from lastlayer.study.prepare import prepare

torch.set_num_threads(1)


def start(folder: Path, root: Path) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        ready = prepare(plan_of(), folder, root)
        conduct(ready, "text", folder, version="1", device="cpu")
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    images = small_root(root / "cifar", pytest.MonkeyPatch())
    killed = kill(root, partial(start, root=images), kills=KILLS // 5, after=(1 / 8, 1 / 2))
    print(killed)  # noqa: T201  (read by the test)
