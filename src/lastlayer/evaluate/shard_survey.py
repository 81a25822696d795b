"""What all shards hold together: their classes, their one width, and which cannot be read."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lastlayer.data.feature_columns import unlike_columns
from lastlayer.data.made_by import Maker, are_others, in_words
from lastlayer.data.shard_list import Shard
from lastlayer.data.shard_rows import About, Counts
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import DataError, LastLayerError, OptionError
from lastlayer.evaluate.shard_tasks import Run, error_of

AT_ONCE = 64  # shards that one task looks at


@dataclass(frozen=True)
class Survey:
    """What the shards that can be read hold."""

    shards: list[Shard]
    abouts: list[About]
    counts: Counts  # rows of each class, in the order of the classes
    broken: dict[str, str]  # the path of each shard that is left out, and why
    columns: tuple[str, ...] = ()  # the names of columns in the order in which they are learned
    made_by: Maker = field(default_factory=dict)  # what made the features, as far as it is known

    @property
    def width(self) -> int:
        """The size of a feature vector."""
        return self.abouts[0].width

    @property
    def n(self) -> int:
        """How many rows there are."""
        return sum(about.n for about in self.abouts)

    def without(self, broken: Mapping[str, str]) -> "Survey":
        """Return the survey without some shards that turned out to be broken."""
        kept = [
            (shard, about)
            for shard, about in zip(self.shards, self.abouts, strict=True)
            if shard.path not in broken
        ]
        if not kept:
            raise DataError(f"no shard can be read: {next(iter(broken.values()))}")
        left = [shard for shard, _ in kept], [about for _, about in kept]
        return replace(self, shards=left[0], abouts=left[1], broken={**self.broken, **broken})


def survey(
    shards: Sequence[Shard],
    selection: Selection,
    run: Run,
    skip: bool,
    learned: int | None,
    maker: Maker | None = None,
) -> Survey:
    """Survey all shards; one that cannot be read or differs from the others is refused.

    ``skip`` leaves it out instead. The width of features is the ``learned`` one, or the one that
    most shards have. They must be made by ``maker``, or by one and the same; None: by any.
    """
    tasks = [
        {"kind": "look", "selection": selection, "shards": shards[start : start + AT_ONCE]}
        for start in range(0, len(shards), AT_ONCE)
    ]
    found: dict[str, tuple[About, Counts] | LastLayerError] = {}
    for task, answer in run(tasks):
        for shard, one in zip(task["shards"], answer["looked"], strict=True):
            found[shard.path] = error_of(one) if isinstance(one, dict) else one
    in_order = [(shard, found[shard.path]) for shard in shards]
    return _combine(in_order, skip, learned, tuple(selection.columns), maker)


def _combine(
    found: Sequence[tuple[Shard, tuple[About, Counts] | LastLayerError]],
    skip: bool,
    learned: int | None,
    columns: tuple[str, ...],
    maker: Maker | None,
) -> Survey:
    read = [(shard, one[0]) for shard, one in found if not isinstance(one, LastLayerError)]
    widths = Counter(about.width for _, about in read)
    width = learned or next((width for width, _ in widths.most_common(1)), 0)
    usual = next((one for one in read if one[1].width == width), None)
    of_width = [about for _, about in read if about.width == width]
    columns = columns or next((a.columns for a in of_width if a.columns), ())
    made_by = dict(maker or {})
    good: list[tuple[Shard, About]] = []
    broken: dict[str, str] = {}
    counts: Counts = {}
    for shard, one in found:
        error = (
            one
            if isinstance(one, LastLayerError)
            else _unlike(width, usual, shard, one[0], columns)
        )
        if error is None and not isinstance(one, LastLayerError) and maker is not None:
            error = _made_by_another(shard, one[0], made_by)
        if error is not None:
            if not skip:
                raise error
            broken[shard.path] = str(error)
        elif not isinstance(one, LastLayerError):
            made_by = {**one[0].made_by, **made_by}
            # Each shard says again what its columns are called when it is read.
            good.append((shard, replace(one[0], columns=(), made_by={})))
            for name, n in one[1].items():
                counts[name] = counts.get(name, 0) + n
    if not good:
        first = next(iter(broken.values()))
        raise DataError(f"none of {len(broken)} shards can be read: {first}")
    numbers = all(about.numbers for _, about in good)
    ordered = sorted(counts, key=int if numbers else str)
    kept = [shard for shard, _ in good], [about for _, about in good]
    made = Survey(*kept, {name: counts[name] for name in ordered}, broken, columns, made_by)
    if made.n == 0:
        raise OptionError("no shard has rows of the split that was asked for")
    return made


def _unlike(
    width: int,
    like: tuple[Shard, About] | None,
    shard: Shard,
    about: About,
    columns: Sequence[str],
) -> LastLayerError | None:
    """Return how a shard differs from a usual one, or from what a head has learned; None: not."""
    if like is None or about.width != width:
        why = "as the head has learned" if like is None else f"as in {like[0].path}"
        return DataError(
            f"features must have {width} columns, {why}, got {about.width} in {shard.path}"
        )
    first, usual = like
    if about.split != usual.split:
        splits = [one.split or "none" for one in (usual, about)]
        return DataError(
            f"shards must have one column of splits, got '{splits[0]}' in {first.path} and "
            f"'{splits[1]}' in {shard.path}: ask for rows 'all', or rename the column"
        )
    other = unlike_columns(about.columns, columns) if about.columns and columns else ""
    if other:
        return DataError(f"columns of {shard.path} must be those of the others: {other}")
    return None


def _made_by_another(shard: Shard, about: About, known: Maker) -> LastLayerError | None:
    if not are_others(about.made_by, known):
        return None
    return DataError(
        f"features of {shard.path} were made by {in_words(about.made_by)}, others by "
        f"{in_words(known)}: if they are alike all the same, accept_features=True "
        "(--accept-features) takes them"
    )
