"""Kills a study of networks at random moments, in processes of its own; run by its test."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
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


def finish(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path) -> None:
    root = small_root(folder / "cifar", pytest.MonkeyPatch())
    begin = time.monotonic()
    assert finish(start(folder / "undisturbed", root)) == 0
    whole = time.monotonic() - begin
    chance = random.Random(0)
    study = killed = 0
    while killed < 4:
        child = start(folder / f"killed-{study}", root)
        time.sleep(chance.uniform(whole / 8, whole / 2))
        os.kill(child, signal.SIGKILL)
        if finish(child) == -signal.SIGKILL:
            killed += 1
        else:  # it was finished before: the next one begins anew
            study += 1
    for number in range(study + 1):
        assert finish(start(folder / f"killed-{number}", root)) == 0
    print(killed)  # noqa: T201  (read by the test)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
