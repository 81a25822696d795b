"""What all shards hold together: their classes, their one width, and which cannot be read."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from lastlayer.errors import DataError, LastLayerError, OptionError
from lastlayer.shards.listing import Shard
from lastlayer.shards.reading import About, Counts, Wish
from lastlayer.shards.work import Answer, Task, error_of

AT_ONCE = 64  # shards that one task looks at
Run = Callable[[Sequence[Task]], Iterator[tuple[Task, Answer]]]


@dataclass(frozen=True)
class Survey:
    """What the shards that can be read hold."""

    shards: list[Shard]
    abouts: list[About]
    counts: Counts  # rows of each class, in the order of the classes
    broken: dict[str, str]  # the path of each shard that is left out, and why

    @property
    def width(self) -> int:
        """The size of a feature vector."""
        return self.abouts[0].width

    @property
    def n(self) -> int:
        """How many rows there are."""
        return sum(about.n for about in self.abouts)

    def without(self, broken: Mapping[str, str]) -> "Survey":
        """Return it without some shards that turned out to be broken."""
        kept = [
            (shard, about)
            for shard, about in zip(self.shards, self.abouts, strict=True)
            if shard.path not in broken
        ]
        if not kept:
            raise DataError(
                f"expected a shard that can be read, but none can: {next(iter(broken.values()))}"
            )
        left = [shard for shard, _ in kept], [about for _, about in kept]
        return replace(self, shards=left[0], abouts=left[1], broken={**self.broken, **broken})


def survey(
    shards: Sequence[Shard], wish: Wish, run: Run, skip: bool, learned: int | None
) -> Survey:
    """Look at all shards; one that cannot be read, or is unlike the others, is refused or left out.

    Args:
        shards: in their order.
        wish: which rows and columns are meant.
        run: does tasks.
        skip: whether to leave such a shard out.
        learned: the size of features that a head has learned; None: the one that most shards have.
    """
    found: dict[str, tuple[About, Counts] | LastLayerError] = {}
    for task, answer in run(_tasks(shards, wish)):
        for shard, one in zip(task["shards"], answer["looked"], strict=True):
            found[shard["path"]] = (
                error_of(one) if "error" in one else (About(**one["about"]), one["counts"])
            )
    return _combine([(shard, found[shard.path]) for shard in shards], skip, learned)


def _tasks(shards: Sequence[Shard], wish: Wish) -> list[Task]:
    return [
        {
            "kind": "look",
            "wish": asdict(wish),
            "shards": [asdict(shard) for shard in shards[start : start + AT_ONCE]],
        }
        for start in range(0, len(shards), AT_ONCE)
    ]


def _combine(
    found: Sequence[tuple[Shard, tuple[About, Counts] | LastLayerError]],
    skip: bool,
    learned: int | None,
) -> Survey:
    read = [(shard, one[0]) for shard, one in found if not isinstance(one, LastLayerError)]
    widths = Counter(about.width for _, about in read)
    width = learned or next((width for width, _ in widths.most_common(1)), 0)
    usual = next((one for one in read if one[1].width == width), None)
    good: list[tuple[Shard, About]] = []
    broken: dict[str, str] = {}
    counts: Counts = {}
    for shard, one in found:
        error = one if isinstance(one, LastLayerError) else _unlike(width, usual, shard, one[0])
        if error is not None:
            if not skip:
                raise error
            broken[shard.path] = str(error)
        elif not isinstance(one, LastLayerError):
            good.append((shard, one[0]))
            for name, n in one[1].items():
                counts[name] = counts.get(name, 0) + n
    if not good:
        raise DataError(
            f"expected a shard that can be read, but none of {len(broken)} can: "
            f"{next(iter(broken.values()))}"
        )
    numbers = all(about.numbers for _, about in good)
    ordered = sorted(counts, key=_number if numbers else str)
    kept = [shard for shard, _ in good], [about for _, about in good]
    made = Survey(*kept, {name: counts[name] for name in ordered}, broken)
    if made.n == 0:
        raise OptionError("expected rows of the split that was asked for, but no shard has any")
    return made


def _unlike(
    width: int, like: tuple[Shard, About] | None, shard: Shard, about: About
) -> LastLayerError | None:
    """Say in what a shard differs from a usual one, or from what a head has learned."""
    if like is None or about.width != width:
        as_what = "as the head has learned" if like is None else f"as in {like[0].path}"
        return DataError(
            f"expected features of size {width} {as_what}, got {about.width} in {shard.path}"
        )
    first, usual = like
    if about.split != usual.split:
        columns = [one.split or "none" for one in (usual, about)]
        return DataError(
            f"expected one column of splits, got '{columns[0]}' in {first.path} and '{columns[1]}' "
            f"in {shard.path}: ask for rows 'all', or rename the column"
        )
    return None


def _number(name: str) -> Any:
    return int(name)
