"""Kills a study at random moments, in processes of its own; run by test_killed.py.

The children are forked before PyTorch has made threads, so that each starts in no time.
"""

import os
import resource
import sys
from functools import partial
from pathlib import Path

from killing import KILLS, finish, kill
from lastlayer.errors import WriteError
from lastlayer.study.conduct import conduct
from lastlayer.study.plan_file import Plan
from lastlayer.study.prepare import prepare
from small_data import small_data

FULL = 7  # the exit status of a child that found the disk full


def plan(file: Path) -> Plan:
    kinds = [{"features": str(file), "scenario": s} for s in ("incremental:3", "lifelong:session")]
    return Plan.model_validate({"preset": "paper", "seeds": "0-3", "experiment": kinds})


def start(folder: Path, file: Path, limit: int | None = None) -> int:
    """Conduct the study in a child; with a limit no file may grow beyond so many bytes."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        conduct(prepare(plan(file), folder), "text", folder, version="1", device="cpu")
        status = 0
    except WriteError as error:
        print(error, flush=True)  # noqa: T201  (read by the test)
        status = FULL
    finally:
        os._exit(status)


if __name__ == "__main__":
    root, task = Path(sys.argv[1]), sys.argv[2]
    file = root / "small.safetensors"
    small_data().save(file)
    if task == "kill":
        kill(root, partial(start, file=file), kills=KILLS, after=(0, 1 / 3))
    else:
        assert finish(start(root / "undisturbed", file)) == 0
        assert finish(start(root / "full", file, limit=100_000)) == FULL
        assert finish(start(root / "full", file)) == 0
