"""Who learns what, and under which name: groups of shards, and a tree that merges them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lastlayer.files import fingerprint
from lastlayer.heads import Head
from lastlayer.shards.listing import Shard
from lastlayer.shards.reading import About, Wish
from lastlayer.shards.work import Task

FORMAT = 1  # of parts: another one gets other names
LEAST = 32 << 20  # bytes of features in a group
FEW, MOST = 16, 4096  # groups: at least, where there are enough shards, and at most
BESIDE_STATE = 8  # times the size of a part is how many bytes of features it stands for
FAN = 4  # parts that are merged at a time, by one core


@dataclass(frozen=True)
class Plan:
    """All tasks, level by level: each needs only parts of the levels before."""

    begin: str  # the name of the head that all parts begin with
    levels: list[list[Task]]

    @property
    def root(self) -> str:
        """The name of the part that holds everything."""
        return str(self.levels[-1][0]["name"])

    @property
    def names(self) -> list[str]:
        """The names of all files that the work leaves in the folder."""
        return [self.begin, *(task["name"] for level in self.levels for task in level)]


def make_plan(
    shards: Sequence[Shard],
    abouts: Sequence[About],
    head: Head,
    wish: Wish,
    how: dict[str, Any],
    group_bytes: int | None = None,
) -> Plan:
    """Plan the work: it depends on the shards and the head alone, not on who will do it.

    Args:
        shards: in their order.
        abouts: what they hold.
        head: what all parts begin with.
        wish: which rows and columns are meant.
        how: what else a task needs: the folder of parts, and so on.
        group_bytes: of the shards in a group, if not what suits them.
    """
    begin = _digest({"head": _identity(head)})
    size = group_bytes or _suitable(shards, head)
    leaves = []
    for start, stop in _groups(shards, size):
        mine = [asdict(shard) for shard in shards[start:stop]]
        identity = {"begin": begin, "wish": wish.identity, "shards": mine, "skip": how["skip"]}
        identity |= {"feature_scale": how["feature_scale"], "format": FORMAT}
        task = {"kind": "learn", "name": _digest(identity), "begin": begin, "shards": mine, **how}
        task["abouts"] = [asdict(about) for about in abouts[start:stop]]
        leaves.append(task | {"wish": asdict(wish)})
    levels = [leaves]
    while len(levels[-1]) > 1:
        levels.append(_merges([task["name"] for task in levels[-1]], how))
    return Plan(begin, levels)


def _merges(names: Sequence[str], how: dict[str, Any]) -> list[Task]:
    groups = [list(names[start : start + FAN]) for start in range(0, len(names), FAN)]
    return [
        {"kind": "merge", "name": _digest({"merge": some}), "names": some, "parts": how["parts"]}
        for some in groups
    ]


def _suitable(shards: Sequence[Shard], head: Head) -> int:
    """Say how many bytes a group should have: enough to be worth a part, not too many to lose."""
    state: int = sum(tensor.nbytes for tensor in head.state_dict().values())
    total = sum(shard.size for shard in shards)
    worth = min(BESIDE_STATE * state, total // FEW)
    return max(LEAST, -(-total // MOST), worth)


def _groups(shards: Sequence[Shard], size: int) -> list[tuple[int, int]]:
    """Cut shards, in their order, into groups of about that many bytes."""
    ends, held = [0], 0
    for place, shard in enumerate(shards):
        if held and held + shard.size > size:
            ends.append(place)
            held = 0
        held += shard.size
    return list(zip(ends, [*ends[1:], len(shards)], strict=True))


def _identity(head: Head) -> list[Any]:
    return [head.name, head.settings, head.class_names, fingerprint(head.state_dict())]


def _digest(identity: object) -> str:
    text = json.dumps(identity, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]
