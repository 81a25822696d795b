"""Train a classifier on shards: their survey, what it may learn of them, and what it notes."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lastlayer.core.checks import choice
from lastlayer.core.progress import Tell
from lastlayer.data.shard_list import Sharded, list_shards
from lastlayer.data.shard_rows import read_shard
from lastlayer.data.tables.which_columns import Selection
from lastlayer.errors import DataError, LastLayerError, OptionError
from lastlayer.estimator import HeadClassifier
from lastlayer.evaluate.shard_tasks import Run, run_in_threads
from lastlayer.evaluate.shards import Survey, Work, folder_of, survey, survey_in_words
from lastlayer.evaluate.training_rows import Divided
from lastlayer.heads.records import repeated_shards

Path_ = str | os.PathLike[str]
LEARNED = ("stop", "skip", "again")  # what to do with shards that a head has learned before


def fit_shards(
    source: Sharded,
    clf: HeadClassifier,
    selection: Selection,
    *,
    parts: Path_ | None = None,
    broken: str = "stop",
    learned: str = "stop",
    progress: Tell | None = None,
    accept_features: bool = False,
    run: Run = run_in_threads,
    check: Callable[[Path, Sequence[Path]], None] | None = None,
) -> HeadClassifier:
    """Train a classifier on shards, or train one further, exactly as if they were one file.

    Its head must be one that merges; after an error it is as before. The other arguments are those
    of ``lastlayer.fit``. Without ``parts`` a temporary folder is used; of a given one the sum is
    left, for the caller to remove once the classifier is saved. ``run`` does tasks, and yields each
    with its answer; ``check`` is called with the folder of parts and the first shard before
    anything is done, to refuse a cluster that does not see them.
    """
    skip = choice(broken, ("stop", "skip"), "broken") == "skip"
    shards = list_shards(source, selection.rows, selection.embedding)
    if shards[0].labels:  # the embedding was the name of a folder
        selection = replace(selection, embedding=None)
    selection = replace(selection, columns=clf.column_names)
    with folder_of(parts) as folder:
        if check is not None:
            check(folder, [Path(shards[0].path)])
        work = Work(folder, selection, skip, float(clf.feature_scale), run, progress)
        maker = None if accept_features else clf.maker
        width = getattr(clf, "n_features_in_", None)
        found = survey(shards, selection, work.run, skip, width, maker)
        found = _new_shards(clf, found, choice(learned, LEARNED, "learned"))
        if not found.n:
            return clf
        work = replace(work, selection=replace(selection, columns=found.columns))
        if width is not None and not accept_features:
            _look_at_first(clf, work, found)
        if isinstance(clf.class_weight, Mapping):
            raise OptionError("class_weight of shards must be 'balanced', or None, got a dict")
        with clf.all_or_nothing():
            own = clf.begin_with(found.width, found.columns, list(found.counts))
            clf.head_, found = work.learn(clf.head_, own, found)
            clf.head_.class_names = clf.labels_.names
            prints = [about.print for about in found.abouts]
            known = clf.head_.records.get("shards", [])
            clf.head_.records["shards"] = list(dict.fromkeys([*known, *prints]))
            clf.note(survey_in_words(found))
            clf.note_maker(found.made_by)
        return clf


def _new_shards(clf: HeadClassifier, found: Survey, learned: str) -> Survey:
    """Return the shards that a head has not learned yet, or refuse those that it has."""
    fitted = learned != "again" and hasattr(clf, "head_") and bool(clf.head_.seen.any())
    known = clf.head_.records.get("shards", []) if fitted else []
    old = set(repeated_shards([about.print for about in found.abouts], known))
    both = list(zip(found.shards, found.abouts, strict=True))
    new = [(shard, about) for shard, about in both if about.print not in old]
    if old and learned == "stop":
        first = next(Path(shard.path).name for shard, about in both if about.print in old)
        n = len(both) - len(new)
        raise DataError(
            f"{n} of {len(both)} shards were learned before, and their rows would count twice "
            f"({first}{f' and {n - 1} more' if n > 1 else ''}): learned='skip' (--learned skip) "
            "leaves such shards out, 'again' learns them once more"
        )
    kept = [shard for shard, _ in new], [about for _, about in new]
    return replace(found, shards=kept[0], abouts=kept[1])


def _look_at_first(clf: HeadClassifier, work: Work, found: Survey) -> None:
    """Warn if the first rows of shards are of other features; what is broken is said later."""
    with suppress(LastLayerError):
        for z, _ in read_shard(found.shards[0], work.selection, found.abouts[0]):
            clf.look_at(Divided(z, work.scale), "learned")
            break
