"""Conducts a study in child processes and kills them at random moments."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

KILLS = int(os.environ.get("LASTLAYER_KILLS", "20"))  # of a study of heads; a fifth, of networks


def finish(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(root: Path, start: Callable[[Path], int], kills: int, after: tuple[float, float]) -> int:
    """Conduct once undisturbed, then again and again with kills, and once more to the end.

    Args:
        root: for the folders "undisturbed", and "killed-0" and so on.
        start: conducts the study of a folder in a child, and gives its number.
        kills: how many there are.
        after: when they come, as parts of the time that the study takes.

    Returns:
        How many children were really killed.
    """
    begin = time.monotonic()
    assert finish(start(root / "undisturbed")) == 0
    whole = time.monotonic() - begin
    chance = random.Random(0)
    study = killed = 0
    while killed < kills:
        child = start(root / f"killed-{study}")
        time.sleep(whole * chance.uniform(*after))
        os.kill(child, signal.SIGKILL)
        if finish(child) == -signal.SIGKILL:
            killed += 1
        else:  # it was finished before: the next one begins anew
            study += 1
    for number in range(study + 1):
        assert finish(start(root / f"killed-{number}")) == 0
    return killed
