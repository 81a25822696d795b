"""Make the parts of an extraction on a Ray cluster, on GPUs where there are some."""

import math
from collections.abc import Sequence
from pathlib import Path

from lastlayer.cluster import Cluster
from lastlayer.core.progress import Tell
from lastlayer.extraction.parts import Parts, Prepare, fill

AT_ONCE = 4  # parts that a task makes: a network is brought to a node once for all of them
TASKS = 4  # of each GPU, at most: each starts a process and brings the network to the GPU
DECODING = 8  # processes that keep a GPU busy, if nobody says how many


def fill_on_ray(
    address: str,
    parts: Parts,
    prepare: Prepare,
    progress: Tell,
    *,
    files: Sequence[Path],
    device: str,
    workers: int | None = None,
) -> None:
    """Make the parts that are missing; a part that two nodes make is the same.

    Args:
        address: of the cluster, ``auto`` or ``local``.
        parts: what is to be made, in a folder that all nodes see.
        prepare: called on each node; it travels there with all that it holds.
        progress: is told how many rows are done, and how many there are.
        files: some of those that are read.
        device: ``cpu``, or anything else for a GPU where the cluster has one.
        workers: processes that each task has for decoding; None: as many as there are cores for a
            GPU, up to 8, and none without GPUs.
    """
    missing = parts.missing()
    done = parts.total - sum(map(len, missing))
    cluster = Cluster(address)
    try:
        cluster.check_nodes(parts.folder, files)
        gpus = 0 if device == "cpu" else cluster.gpus
        if workers is None:
            workers = min(DECODING, cluster.cores_of_a_gpu) if gpus else 0
        cpus = max(1, workers)
        shared = cluster.share((parts, prepare, cpus))
        for made, _ in cluster.run(
            _make, tasks_of(missing, gpus), shared, cpus=cpus, gpus=min(gpus, 1)
        ):
            done += sum(map(len, made))
            progress(done, parts.total)
    finally:
        cluster.close()


def tasks_of(missing: Sequence[range], gpus: int) -> list[Sequence[range]]:
    """Put parts together to tasks: a few for each GPU, or of a few parts each.

    >>> [len(task) for task in tasks_of([range(10)] * 20, gpus=1)]
    [5, 5, 5, 5]
    >>> [len(task) for task in tasks_of([range(10)] * 20, gpus=0)]
    [4, 4, 4, 4, 4]
    """
    size = max(AT_ONCE, math.ceil(len(missing) / (TASKS * gpus))) if gpus else AT_ONCE
    return [missing[start : start + size] for start in range(0, len(missing), size)]


def _make(missing: Sequence[range], shared: tuple[Parts, Prepare, int]) -> None:
    """Make some parts, on a node."""
    parts, prepare, cores = shared
    fill(parts, *prepare(cores), missing=missing)
