"""Learn a head from shards: look at them, plan, do the tasks, and take the sum."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from lastlayer.arguments import a_path, choice
from lastlayer.errors import DataError, LastLayerError
from lastlayer.estimator import HeadClassifier
from lastlayer.heads import Head, make_head
from lastlayer.heads.maps.mapped_head import MappedHead
from lastlayer.progress import Meter, Tell
from lastlayer.shards.listing import Shard, Sharded, list_shards
from lastlayer.shards.local import Local, large_blocks_given_back
from lastlayer.shards.parts import Parts
from lastlayer.shards.plan import Plan, make_plan
from lastlayer.shards.reading import Wish, read_shard
from lastlayer.shards.survey import Survey, survey
from lastlayer.shards.work import Answer, Task, error_of, named

LISTED = 20  # shards that are left out, in the words of a head's file
Path_ = str | os.PathLike[str]


class Runner(Protocol):
    """Does tasks, somewhere."""

    def prepare(self, folder: Path, shards: Sequence[Shard]) -> None:
        """Check that whoever does tasks can read shards, and write parts into the folder."""

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
        """Do tasks, and give each with its answer as soon as it is done."""

    def close(self) -> None:
        """Let go of what was needed."""


def fit_shards(
    source: Sharded,
    clf: HeadClassifier,
    wish: Wish,
    *,
    parts: Path_ | None = None,
    broken: str = "stop",
    progress: Tell | None = None,
    runner: Runner | None = None,
    group_bytes: int | None = None,
) -> HeadClassifier:
    """Train a classifier on shards, or train one further, exactly as if they were one file.

    Args:
        source: A folder, a pattern, or a list of files.
        clf: The classifier; after an error it is as before.
        wish: Which rows and columns are meant.
        parts: A folder for what is learned on the way: run again after a kill, the work resumes
            from there. On a cluster all nodes must see it. In the end one part is left, the sum,
            until somebody removes it: the classifier may not be saved yet. None: a temporary one.
        broken: ``stop`` at a shard that cannot be read, or ``skip`` it.
        progress: Is told how many rows are learned, and how many there are.
        runner: Does the tasks, and is left open; None: all cores of this machine.
        group_bytes: Of the shards that make a part, if not what suits them.
    """
    _check_mergeable(clf)
    skip = choice(broken, ("stop", "skip"), "broken") == "skip"
    shards = list_shards(source, wish.rows, wish.embedding)
    if shards[0].labels:  # the embedding was the name of a folder
        wish = replace(wish, embedding=None)
    runner = runner or Local()
    with _folder(parts) as folder:
        runner.prepare(folder, shards)
        learned = int(clf.n_features_in_) if hasattr(clf, "head_") else None
        found = survey(shards, wish, partial(_run, runner), skip, learned)
        return _learned(clf, found, wish, Parts(folder), runner, skip, progress, group_bytes)


def _learned(
    clf: HeadClassifier,
    found: Survey,
    wish: Wish,
    parts: Parts,
    runner: Runner,
    skip: bool,
    progress: Tell | None,
    group_bytes: int | None,
) -> HeadClassifier:
    """Let a classifier take in what the shards hold."""
    scale = float(clf.feature_scale)

    def learn(head: Head, columns: Tensor) -> Head:
        nonlocal found
        first, found = _first_rows(found, wish, head.rows_to_begin, skip)
        called = _names_by_column(head, list(found.counts), columns)
        begin = head.fresh(len(called), None if first is None else first / scale).double()
        begin.class_names = called
        how = {"parts": str(parts.folder), "skip": skip, "feature_scale": scale}
        plan = make_plan(found.shards, found.abouts, begin, wish, how, group_bytes)
        needed = _missing(plan, parts)
        if needed:
            parts.write_begin(plan.begin, begin)
        del begin  # whoever does a task reads it from its file
        # Behind a map all blocks are large, and to ask for each anew would take a fifth longer.
        with nullcontext() if isinstance(head, MappedHead) else large_blocks_given_back():
            learned, found = _carry_out(plan, needed, parts, found, runner, progress)
        learned.class_names = None  # the classifier names them
        return head.merge(learned) if bool(head.seen.any()) else learned

    return clf.take_in(found.width, list(found.counts), learn, said=lambda: _sentence(found))


def _check_mergeable(clf: HeadClassifier) -> None:
    """Refuse a head that cannot be learned in parts before anything is read."""
    if hasattr(clf, "head_"):
        clf.head_.fresh()
        return
    options = dict(clf.options or {}) | ({} if clf.lr is None else {"lr": clf.lr})
    make_head(clf.head, in_features=1, mask=clf.mask, preset=clf.preset, **options).fresh()


def _run(runner: Runner, tasks: Sequence[Task]) -> Iterator[tuple[Task, Answer]]:
    """Do tasks; the first that goes wrong ends it all."""
    for task, answer in runner.run(tasks):
        if "error" in answer:
            raise error_of(answer)
        yield task, answer


def _first_rows(found: Survey, wish: Wish, n: int, skip: bool) -> tuple[Tensor | None, Survey]:
    """Read the first rows of the listing, for a head that begins with them; None: it needs none."""
    if n == 0 or found.n < n:
        return None, found
    rows: list[Tensor] = []
    for shard, about in zip(found.shards, found.abouts, strict=True):
        mine: list[Tensor] = []
        try:
            for z, _ in read_shard(shard, wish, about):  # to its end: then it is known to be sound
                if sum(map(len, (*rows, *mine))) < n:
                    mine.append(z.double())
        except LastLayerError as error:
            if not skip:
                raise named(error, shard) from error
            return _first_rows(found.without({shard.path: str(error)}), wish, n, skip)
        rows += mine
        if sum(map(len, rows)) >= n:
            break
    return torch.cat(rows)[:n], found


def _names_by_column(head: Head, names: Sequence[str], columns: Tensor) -> list[str]:
    """Name the classes of a head as the shards do; those that no shard has keep their names."""
    last = max(int(columns.max()) + 1, head.n_classes)
    known = head.class_names or []
    called = [known[c] if c < len(known) else str(c) for c in range(max(last, len(known)))]
    for name, c in zip(names, columns.tolist(), strict=True):
        called[c] = name
    return called


def _carry_out(
    plan: Plan,
    needed: set[str],
    parts: Parts,
    found: Survey,
    runner: Runner,
    progress: Tell | None,
) -> tuple[Head, Survey]:
    """Make the parts that are needed, level by level, and return the one that holds everything."""
    rows = {task["name"]: sum(a["n"] for a in task["abouts"]) for task in plan.levels[0]}
    meter = Meter(found.n, progress)
    meter.reach(found.n - sum(rows[name] for name in rows.keys() & needed))
    for level in plan.levels:
        tasks = [task for task in level if task["name"] in needed]
        for task, _ in _run(runner, tasks):
            meter.add(rows.get(task["name"], 0))
    head, broken = parts.read(plan.root)
    found = found.without(broken)
    counts = head.class_counts
    if counts is not None and int(counts.sum()) != found.n:
        raise DataError(
            f"expected {found.n} rows in the sum of all parts, got {int(counts.sum())}: remove "
            f"{parts.folder}, and run this again"
        )
    parts.remove(name for name in plan.names if name != plan.root)
    return head, found


def _missing(plan: Plan, parts: Parts) -> set[str]:
    """Name the parts that are still to be made: none that is only needed for one that is there."""
    tasks = {task["name"]: task for level in plan.levels for task in level}
    missing: set[str] = set()
    asked = [plan.root]
    while asked:
        name = asked.pop()
        if not parts.has(name):
            missing.add(name)
            asked += tasks[name].get("names", [])
    return missing


@contextmanager
def _folder(parts: Path_ | None) -> Iterator[Path]:
    if parts is not None:
        yield a_path(parts, "parts").absolute()
        return
    with tempfile.TemporaryDirectory(prefix="lastlayer-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _sentence(found: Survey) -> str:
    """Say what a head was learned from, without a path of this machine."""
    n = len(found.shards)
    said = f"learned {found.n} rows of {n} shard{'' if n == 1 else 's'}"
    if not found.broken:
        return said
    named = [f"{Path(path).name} ({why})" for path, why in [*found.broken.items()][:LISTED]]
    for folder in {f"{Path(path).parent}{os.sep}" for path in found.broken}:
        named = [text.replace(folder, "") for text in named]
    more = f"; and {len(found.broken) - LISTED} more" if len(found.broken) > LISTED else ""
    return f"{said}; left out {len(found.broken)}: {'; '.join(named)}{more}"
