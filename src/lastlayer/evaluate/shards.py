"""Learning a head from shards: survey them, plan the tasks, do them, and merge what they give.

A head that merges is a sum: what is learned of some shards can be added to what is learned of
others, exactly, wherever that was done. So the plan depends on the shards and the head alone; the
tasks are done in threads here or on a Ray cluster.
"""

import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from lastlayer.core.checks import a_path
from lastlayer.core.progress import Meter, Tell
from lastlayer.core.tensor_files import fingerprint
from lastlayer.data.feature_columns import unlike_columns
from lastlayer.data.made_by import Maker, are_others, in_words
from lastlayer.data.shard_list import Shard
from lastlayer.data.shard_rows import About, Counts, read_shard
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import DataError, LastLayerError, OptionError
from lastlayer.evaluate.shard_tasks import (
    Answer,
    Run,
    Task,
    error_of,
    has_part,
    large_blocks_given_back,
    naming,
    part_path,
    read_part,
    write_part,
)
from lastlayer.heads import Head

AT_ONCE = 64  # shards that one task looks at
FORMAT = 1  # of parts: another one gets other names
LEAST = 32 << 20  # bytes of features in a group
FEW, MOST = 16, 4096  # groups: at least, where there are enough shards, and at most
BESIDE_STATE = 8  # times the size of a part is how many bytes of features it stands for
FAN = 4  # parts that are merged at a time, by one core
LISTED = 20  # shards that are left out, in the words of a head's file
Path_ = str | os.PathLike[str]


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


@dataclass(frozen=True)
class Work:
    """How shards are learned, whatever they hold."""

    folder: Path  # of parts
    selection: Selection
    skip: bool
    scale: float
    do: Run
    progress: Tell | None

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
        """Do tasks; the first that fails ends the work."""
        for task, answer in self.do(tasks):
            if "error" in answer:
                raise error_of(answer)
            yield task, answer

    def learn(self, head: Head, columns: Tensor, found: Survey) -> tuple[Head, Survey]:
        """Return a head that has learned the shards too, and which shards those were in the end."""
        first, found = self._first_rows(found, head.rows_to_begin)
        names = _names_by_column(head, list(found.counts), columns)
        begin = head.fresh(len(names), None if first is None else first / self.scale).double()
        begin.class_names = names
        begin_name, levels = self.plan(found, begin)
        needed = self._missing(levels)
        if needed:
            write_part(self.folder, begin_name, begin, {})
        del begin  # each task reads it from its file
        # Behind a map all blocks are large, and to ask for each anew would take a fifth longer.
        with nullcontext() if head.feature_map is not None else large_blocks_given_back():
            learned, found = self._do_all(levels, needed, found)
        made = {begin_name, *(task["name"] for level in levels for task in level)}
        for name in made - {levels[-1][0]["name"]}:
            part_path(self.folder, name).unlink(missing_ok=True)
        learned.class_names = None  # the classifier names them
        return head.merge(learned) if bool(head.seen.any()) else learned, found

    def _first_rows(self, found: Survey, n: int) -> tuple[Tensor | None, Survey]:
        """Return the first rows of the shards for a head that begins with them, else None."""
        if n == 0 or found.n < n:
            return None, found
        rows: list[Tensor] = []
        for shard, about in zip(found.shards, found.abouts, strict=True):
            mine: list[Tensor] = []
            try:
                # Read to its end, a shard is known to be sound.
                for z, _ in read_shard(shard, self.selection, about):
                    if sum(map(len, (*rows, *mine))) < n:
                        mine.append(z.double())
            except LastLayerError as error:
                if not self.skip:
                    raise naming(error, shard) from error
                return self._first_rows(found.without({shard.path: str(error)}), n)
            rows += mine
            if sum(map(len, rows)) >= n:
                break
        return torch.cat(rows)[:n], found

    def plan(self, found: Survey, begin: Head) -> tuple[str, list[list[Task]]]:
        """Return the name of what all parts begin with, and all tasks, level by level.

        The tasks of a level need only parts of the levels before; the last level is one task, which
        makes the sum. Names and tasks depend on the shards and the head alone.
        """
        state = [begin.name, begin.settings, begin.class_names, fingerprint(begin.state_dict())]
        begin_name = _digest({"head": state})
        how = {"skip": self.skip, "feature_scale": self.scale}
        same = {"kind": "learn", "begin": begin_name, "parts": str(self.folder)}
        leaves: list[Task] = []
        for start, stop in _groups(found.shards, _group_bytes(found.shards, begin)):
            mine, abouts = found.shards[start:stop], found.abouts[start:stop]
            identity: Task = {"begin": begin_name, "shards": [asdict(shard) for shard in mine]}
            identity |= {"selection": asdict(self.selection), **how, "format": FORMAT}
            task = {**same, **how, "name": _digest(identity), "selection": self.selection}
            leaves.append({**task, "shards": mine, "abouts": abouts})
        levels = [leaves]
        while len(levels[-1]) > 1:
            names = [task["name"] for task in levels[-1]]
            groups = [names[start : start + FAN] for start in range(0, len(names), FAN)]
            merge = {"kind": "merge", "parts": str(self.folder)}
            levels.append([{**merge, "name": _digest({"merge": g}), "names": g} for g in groups])
        return begin_name, levels

    def _missing(self, levels: Sequence[Sequence[Task]]) -> set[str]:
        """Return the parts still to be made: none that is only needed for one that is there."""
        tasks = {task["name"]: task for level in levels for task in level}
        missing: set[str] = set()
        asked = [levels[-1][0]["name"]]
        while asked:
            name = asked.pop()
            if not has_part(self.folder, name):
                missing.add(name)
                asked += tasks[name].get("names", [])
        return missing

    def _do_all(
        self, levels: Sequence[Sequence[Task]], needed: set[str], found: Survey
    ) -> tuple[Head, Survey]:
        """Make the parts that are needed, level by level, and return the sum."""
        rows = {task["name"]: sum(about.n for about in task["abouts"]) for task in levels[0]}
        meter = Meter(found.n, self.progress)
        meter.reach(found.n - sum(rows[name] for name in rows.keys() & needed))
        for level in levels:
            for task, _ in self.run([task for task in level if task["name"] in needed]):
                meter.add(rows.get(task["name"], 0))
        head, broken = read_part(self.folder, levels[-1][0]["name"])
        found = found.without(broken)
        counts = head.class_counts
        if counts is not None and int(counts.sum()) != found.n:
            raise DataError(
                f"the sum of all parts must hold {found.n} rows, got {int(counts.sum())}: remove "
                f"{self.folder} and run this again"
            )
        return head, found


def _names_by_column(head: Head, names: Sequence[str], columns: Tensor) -> list[str]:
    """Name the classes of a head as the shards do; those that no shard has keep their names."""
    last = max(int(columns.max()) + 1, head.n_classes)
    known = head.class_names or []
    called = [known[c] if c < len(known) else str(c) for c in range(max(last, len(known)))]
    for name, c in zip(names, columns.tolist(), strict=True):
        called[c] = name
    return called


def _group_bytes(shards: Sequence[Shard], head: Head) -> int:
    """Return how many bytes of shards make a part: worth writing one, not too many to lose."""
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


def _digest(identity: object) -> str:
    text = json.dumps(identity, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


@contextmanager
def folder_of(parts: Path_ | None) -> Iterator[Path]:
    """Yield the folder of parts; None: a temporary one."""
    if parts is not None:
        yield a_path(parts, "parts").absolute()
        return
    with tempfile.TemporaryDirectory(prefix="lastlayer-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def survey_in_words(found: Survey) -> str:
    """Return what a head was learned from, without a path of this machine."""
    n = len(found.shards)
    said = f"learned {found.n} rows of {n} shard{'' if n == 1 else 's'}"
    if not found.broken:
        return said
    named = [f"{Path(path).name} ({why})" for path, why in [*found.broken.items()][:LISTED]]
    for folder in {f"{Path(path).parent}{os.sep}" for path in found.broken}:
        named = [text.replace(folder, "") for text in named]
    more = f"; and {len(found.broken) - LISTED} more" if len(found.broken) > LISTED else ""
    return f"{said}; left out {len(found.broken)}: {'; '.join(named)}{more}"
