"""Features from a table of embeddings that another program wrote."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lastlayer.core.checks import real
from lastlayer.data.features import Features, Origin, TrainingFeatures
from lastlayer.data.from_arrays import Say, join
from lastlayer.data.hold_out import TEST
from lastlayer.data.table_rows import read_splits
from lastlayer.data.tables.open_table import one_table, open_table
from lastlayer.data.tables.which_columns import WORDS, Selection, parted
from lastlayer.errors import OptionError

Path_ = str | os.PathLike[str]


def import_features(
    path: Path_,
    embedding: str | None = None,
    label: str | None = None,
    domains: Sequence[str] = (),
    *,
    split: str | None = None,
    test: float | Path_ | None = None,
    validation: Path_ | None = None,
    seed: int = 0,
    made_by: str = "",
    say: Say = lambda sentence: None,
) -> Features:
    """Read embeddings and their labels from a file.

    A split that the file has is used as it is: arrays such as ``z_train`` and ``z_test``, a column
    named ``split``, or the splits of a folder.

    The file is a table of any of ``SUFFIXES``, or a folder that Hugging Face's datasets saved to
    disk; which columns of it are meant is said as in ``Features.from_frame``. ``test`` and
    ``validation`` are files of those sets; or ``test`` is the part of each class to draw where
    there is none, 0.2 if not given. What was done is told to ``say``, sentence by sentence.
    """
    selection = Selection(embedding=embedding, label=label, domains=domains, split=split)
    # What lies beside an array may be anything.
    selection = replace(selection, only_other=Path(path).suffix.lower() != ".npy")
    files = {"test": test, "validation": validation}
    drawn = None if test is None or isinstance(test, str | os.PathLike) else real(test, "test")
    if split is not None and drawn is not None:
        raise OptionError(f"give a split column or a part to draw, got '{split}' and {drawn}")
    given = {name: f for name, f in files.items() if isinstance(f, str | os.PathLike)}
    tables = open_table(path)
    if given:
        if split is not None or set(tables) != {""}:
            raise OptionError(f"{path} has splits of its own: leave out {', '.join(given)}")
        tables = {"train": tables[""], **{n: one_table(file) for n, file in given.items()}}
    splits = read_splits(tables, selection, say)
    made = _how(selection, drawn, given, None if "test" in splits else seed, made_by)
    origin = Origin(dataset=Path(path).stem, backbone=made_by, made=made)
    found = Features.of_pieces(splits, origin, drawn, seed, say)
    _mention_beside(Path(path), given, say)
    return found


def import_training(
    path: Path_,
    embedding: str | None = None,
    label: str | None = None,
    domains: Sequence[str] = (),
) -> Features | TrainingFeatures:
    """Read embeddings and labels from a file; without a split in it all rows are for training."""
    other = Path(path).suffix.lower() != ".npy"
    selection = Selection(embedding=embedding, label=label, domains=domains, only_other=other)
    splits = read_splits(open_table(path), selection)
    if len(splits) > 1:
        return Features.of_pieces(splits, Origin(dataset=Path(path).stem))
    (only,) = splits.values()
    made, names = join({"train": (only.z, only.columns)})
    return TrainingFeatures(made["train"], names)


def _mention_beside(path: Path, given: Mapping[str, Path_], say: Say) -> None:
    """Mention a test set that lies beside a training set and was not named."""
    base, split = parted(path.stem) if parted(path.stem)[1] else ("", WORDS.get(path.stem, ""))
    if split != "train" or given or path.suffix == ".npy":
        return
    for other in sorted(path.parent.glob(f"*{path.suffix}")):
        word = parted(other.stem)
        alone = WORDS.get(other.stem.lower(), "") if not base else ""
        if (word == (base, "test") and base) or alone == "test":
            say(f"did not use {other.name}, which lies beside it: --test {other.name} does")


def _how(
    selection: Selection,
    drawn: float | None,
    given: Mapping[str, Path_],
    seed: int | None,
    made_by: str,
) -> str:
    """Return the command that makes these features again, with no path of this machine in it.

    A ``seed`` of None: no test rows were drawn.
    """
    options = {"--embedding": selection.embedding, "--label": selection.label}
    words = [f"{name} {value}" for name, value in options.items() if value is not None]
    words += [f"--domain {name}" for name in selection.domains]
    if selection.split is not None:
        words.append(f"--split {selection.split}")
    words += [f"--{name} FILE" for name in given]
    if seed is not None:
        words.append(f"--test {TEST if drawn is None else drawn} --seed {seed}")
    if made_by:
        words.append(f"--made-by {made_by}")
    return " ".join(["lastlayer import FILE", *words, "--out FILE"])
