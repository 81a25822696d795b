"""Work on shards that stops at a barrier; and a driver that can be killed.

What happens is noted in files: each start of a task, with the node and the process that began it.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import piles

import lastlayer as ll
from lastlayer.cluster import Cluster
from lastlayer.data.tables.which_columns import Selection
from lastlayer.estimator.fit_shards import fit_shards

Work = Callable[[dict[str, Any]], dict[str, Any]]


def stopping(notes: Path, free: int = 0) -> Work:
    """Make work that notes its starts, and waits until somebody opens the barrier.

    Args:
        notes: a folder for what happens.
        free: tasks of learning that need not wait.
    """
    folder = str(notes)

    def work(task: dict[str, Any]) -> dict[str, Any]:
        """Travels to the nodes whole, as a function within another does."""
        import json  # noqa: PLC0415
        import os  # noqa: PLC0415
        import time  # noqa: PLC0415
        import uuid  # noqa: PLC0415

        import ray  # noqa: PLC0415

        from lastlayer.evaluate.shard_tasks import do  # noqa: PLC0415

        if task["kind"] == "look":
            return do(task)
        node, number = ray.get_runtime_context().get_node_id(), uuid.uuid4().hex
        note = {"name": task["name"], "kind": task["kind"], "node": node, "pid": os.getpid()}
        with open(f"{folder}/.{number}", "w") as file:
            json.dump(note, file)
        os.replace(f"{folder}/.{number}", f"{folder}/start-{number}")
        barriers = [f"{folder}/open-{task['kind']}-{node}", f"{folder}/open-{task['kind']}"]
        finished = [name for name in os.listdir(folder) if name.startswith("done-")]
        end = time.monotonic() + 120
        while len(finished) >= free and not any(map(os.path.exists, barriers)):
            if time.monotonic() > end:
                raise TimeoutError(f"nobody opened {barriers}")
            time.sleep(0.02)
        answer = do(task)
        open(f"{folder}/done-{number}", "w").close()
        return answer

    return work


def starts(notes: Path, kind: str = "learn") -> list[dict[str, Any]]:
    """Read what was begun, and by whom."""
    found = [json.loads(file.read_text()) for file in notes.glob("start-*")]
    return [one | {} for one in found if one["kind"] == kind]


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def learn(address: str, folder: Path, parts: Path, work: Work) -> ll.HeadClassifier:
    """Fit shards on a cluster, one part for each."""
    clf, selection = ll.HeadClassifier("slda", random_state=0), Selection(label="species")
    cluster = Cluster(address)
    run = partial(cluster.run, work)
    try:
        with piles.cut(1):
            return fit_shards(
                folder, clf, selection, parts=parts, run=run, check=cluster.check_nodes
            )
    finally:
        cluster.close()


if __name__ == "__main__":
    address, free, *paths = sys.argv[1:]
    folder, parts, notes, out = map(Path, paths)
    learn(address, folder, parts, stopping(notes, int(free))).save(out)
