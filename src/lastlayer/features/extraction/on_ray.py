"""Make the parts of an extraction on a Ray cluster, on GPUs where there are some."""

from collections.abc import Callable, Sequence
from pathlib import Path

from lastlayer.cluster import Cluster
from lastlayer.features.extraction.extract import Make, Tell, fill
from lastlayer.features.extraction.parts import Parts

AT_ONCE = 4  # parts that a task makes: a network is brought to a node once for all of them
Prepare = Callable[[], tuple[Make, int]]  # gives what makes features, and the size of a batch


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
        workers: processes that each task has for decoding.
    """
    missing = parts.missing()
    tasks = [missing[start : start + AT_ONCE] for start in range(0, len(missing), AT_ONCE)]
    done = parts.total - sum(map(len, missing))
    cluster = Cluster(address)
    try:
        cluster.check_nodes(parts.folder, files)
        gpus = 1 if cluster.has_gpus and device != "cpu" else 0
        shared = cluster.share((parts, prepare))
        for made, _ in cluster.run(_make, tasks, shared, cpus=max(1, workers or 1), gpus=gpus):
            done += sum(map(len, made))
            progress(done, parts.total)
    finally:
        cluster.close()


def _make(missing: Sequence[range], shared: tuple[Parts, Prepare]) -> None:
    """Make some parts, on a node."""
    parts, prepare = shared
    make, batch_size = prepare()
    fill(parts, batch_size, lambda done, total: None, make, missing)
