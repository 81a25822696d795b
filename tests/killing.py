"""Does work in child processes, kills them at random moments, and does it to the end."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

KILLS = int(os.environ.get("LASTLAYER_KILLS", "20"))  # of a study of heads; fewer of all else


def run(script: Path, *arguments: object) -> str:
    """Run a script that kills its children, in a process that has made no threads yet."""
    done = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fork(do: Callable[[], object]) -> int:
    """Do something in a child; return its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        do()
        status = 0
    finally:
        os._exit(status)


def finish(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill(root: Path, start: Callable[[Path], int], kills: int, after: tuple[float, float]) -> int:
    """Do it once undisturbed, then again and again with kills, and once more to the end.

    Args:
        root: for the folders "undisturbed", and "killed-0" and so on.
        start: does the work of a folder in a child, and gives its number.
        kills: how many there are.
        after: when they come, as parts of the time that the work takes.

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
