"""Do tasks on a Ray cluster: the nodes read shards, and exchange parts through a folder."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lastlayer.cluster import Cluster
from lastlayer.shards.listing import Shard
from lastlayer.shards.work import Answer, Task, do


class OnRay:
    """Does tasks on a cluster.

    Args:
        address: of the cluster, ``auto`` or ``local``.
        work: what does a task.
    """

    def __init__(self, address: str, work: Callable[[Task], Answer] = do) -> None:
        self._work = work
        self._cluster = Cluster(address)

    def prepare(self, folder: Path, shards: Sequence[Shard]) -> None:
        """Check that every node can read the first shard, and write to the folder of parts."""
        self._cluster.check_nodes(folder, [Path(shard.path) for shard in shards[:1]])

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
        """Do tasks, and give each with its answer as soon as it is done."""
        yield from self._cluster.run(self._work, tasks)

    def close(self) -> None:
        """Leave the cluster."""
        self._cluster.close()
