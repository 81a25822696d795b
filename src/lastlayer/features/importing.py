"""Features from a table of embeddings that another program wrote."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lastlayer.arguments import expect, real, short
from lastlayer.errors import DataError, LabelError, OptionError, ShapeError
from lastlayer.features.arrays import join, part
from lastlayer.features.data import Features, Origin, TrainingFeatures
from lastlayer.features.tables import Array, Table, open_table
from lastlayer.features.tables.choosing import SPLITS, WORDS, Chosen, choose, parted
from lastlayer.features.tables.frames import open_frame

TEST = 0.2  # the part of each class that is drawn as test, unless told otherwise
Path_ = str | os.PathLike[str]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Split:
    """What was read for one split."""

    z: Array  # (n, h)
    columns: dict[str, Array]  # each (n,)
    embedding: tuple[str, ...] = ()  # the columns that z was read from


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
    say: Say = lambda sentence: None,
) -> Features:
    """Read embeddings and their labels from a file.

    A split that the file has is used as it is: arrays such as ``z_train`` and ``z_test``, a column
    named ``split``, or the splits of a folder.

    Args:
        path: A .csv, .tsv, .parquet, .arrow, .feather, .jsonl, .npz, .npy, .safetensors or .pt
            file, or a folder that Hugging Face's datasets saved to disk.
        embedding: The column of embeddings: (n, h) numbers, or a list of h numbers per row; or
            columns with one number per row, by prefix (``z_*``) or range (``z_0:z_383``). May be
            left out where there is only one.
        label: The column to learn, of any type; may be left out if it is named y, label or target.
        domains: Further columns to keep as labels, of any type, such as a session.
        split: The column that says ``train``, ``validation`` or ``test``, in capitals or not.
        test: The file of the test set; or the part of each class to draw where there is none,
            0.2 if not given.
        validation: The file of the validation set.
        seed: Decides that draw.
        say: Is told what was done, sentence by sentence.
    """
    _check_arguments(embedding, label, domains, split)
    files = {"test": test, "validation": validation}
    drawn = None if test is None or isinstance(test, str | os.PathLike) else real(test, "test")
    if split is not None and drawn is not None:
        raise OptionError(f"expected a split column or a part to draw, got '{split}' and {drawn}")
    given = {name: f for name, f in files.items() if isinstance(f, str | os.PathLike)}
    tables = open_table(path)
    if given:
        if split is not None or set(tables) != {""}:
            raise OptionError(f"{path} has splits of its own: leave out {', '.join(given)}")
        tables = {"train": tables[""], **{name: _only(file) for name, file in given.items()}}
    splits = _read(tables, _Wish(embedding, label, tuple(domains), split), say)
    made = _how(embedding, label, domains, split, drawn, given, seed)
    data = _assembled(splits, drawn, seed, Origin(dataset=Path(path).stem, made=made), say)
    _mention_beside(Path(path), given, say)
    return data


def import_training(
    path: Path_,
    embedding: str | None = None,
    label: str | None = None,
    domains: Sequence[str] = (),
) -> Features | TrainingFeatures:
    """Read embeddings and labels from a file; without a split in it all rows are for training."""
    _check_arguments(embedding, label, domains, None)
    wish = _Wish(embedding, label, tuple(domains), None)
    splits = _read(open_table(path), wish, lambda sentence: None)
    if len(splits) > 1:
        return import_features(path, embedding, label, domains)
    (whole,) = splits.values()
    made, names = join({"train": (whole.z, whole.columns)})
    return TrainingFeatures(made["train"], names)


def features_from_frame(
    frame: Any,
    embedding: str | None = None,
    label: str | None = None,
    domains: Sequence[str] = (),
    *,
    split: str | None = None,
    test: float | None = None,
    seed: int = 0,
) -> Features:
    """Take embeddings and labels from a frame; ``Features.from_frame`` says how."""
    _check_arguments(embedding, label, domains, split)
    wish = _Wish(embedding, label, tuple(domains), split)
    splits = _read({"": open_frame(frame)}, wish, lambda sentence: None)
    return _assembled(splits, test, seed, Origin(), lambda sentence: None)


@dataclass(frozen=True)
class _Wish:
    """Which columns were asked for."""

    embedding: str | None
    label: str | None
    domains: tuple[str, ...] = ()
    split: str | None = None
    labelled: bool = True  # whether there must be labels
    text: bool = False  # whether the "embedding" is a text that is still to be embedded

    @property
    def what(self) -> str:
        """What is read beside labels."""
        return "text" if self.text else "embedding"

    def choose(self, table: Table) -> dict[str, Chosen]:
        """Find these columns in a table."""
        return choose(table, self.embedding, self.label, self.domains, self.labelled)


def read_splits(
    path: Path_, embedding: str | None = None, label: str | None = None, labelled: bool = True
) -> dict[str, Split]:
    """Read a table as ``import_features`` does, with the splits that it has: "" where it has none.

    Args:
        path: The file.
        embedding: Its column of embeddings, prefix or range of columns.
        label: Its column of labels.
        labelled: Whether there must be labels.
    """
    _check_arguments(embedding, label, (), None)
    wish = _Wish(embedding, label, labelled=labelled)
    return _read(open_table(path), wish, lambda sentence: None)


def read_texts(
    path: Path_, column: str, label: str | None, domains: Sequence[str], split: str | None, say: Say
) -> dict[str, Split]:
    """Read a column of texts, which ``z`` then are, with their labels; splits as they are."""
    _check_arguments(column, label, domains, split)
    wish = _Wish(column, label, tuple(domains), split, text=True)
    return _read(open_table(path), wish, say)


def _check_arguments(
    embedding: str | None, label: str | None, domains: Sequence[str], split: str | None
) -> None:
    expect(domains, (list, tuple), "domains", "a list of names")
    for name in (embedding, label, split):
        expect(name, (str, type(None)), "the name of a column", "text")
    for name in domains:
        expect(name, str, "the name of a column", "text")


def _only(path: Path_) -> Table:
    tables = open_table(path)
    if set(tables) != {""}:
        raise OptionError(f"expected one table as {path}, but it has splits: {', '.join(tables)}")
    return tables[""]


def _read(tables: Mapping[str, Table], wish: _Wish, say: Say) -> dict[str, Split]:
    """Read every split that there is; under "" one that is still to be drawn from."""
    if set(tables) == {""}:
        return _read_one(tables[""], wish, say)
    splits: dict[str, Split] = {}
    for name, table in tables.items():
        word = WORDS.get(name.lower())
        if word is None:
            say(f"left out '{name}', which is neither train, validation nor test")
            continue
        if word in splits:
            raise DataError(f"expected one {word} split, got two")
        chosen = wish.choose(table)
        if set(chosen) != {""}:
            raise OptionError(f"{table.source} has splits of its own: leave out the other files")
        splits[word] = _read_columns(table, chosen[""], wish)
        if word == "train":
            _say_columns(table, chosen[""], [], say, wish.what)
    if "train" not in splits:
        raise DataError(f"expected a split 'train', got {', '.join(tables)}")
    if len(splits) > 1:
        say("used its splits as they are: " + _sizes(splits))
    return splits


def _read_one(table: Table, wish: _Wish, say: Say) -> dict[str, Split]:
    chosen = wish.choose(table)
    used = [name for one in chosen.values() for name in (*one.embedding, *one.labels.values())]
    if set(chosen) != {""}:
        if wish.split is not None:
            raise OptionError(f"{table.source} is already split by its columns: leave out --split")
        splits = {name: _read_columns(table, one, wish) for name, one in chosen.items()}
        _say_columns(table, chosen["train"], used, say, wish.what)
        say("used its splits as they are: " + _sizes(splits))
        return splits
    column = wish.split or next((n for n in table.columns if n.lower() in SPLITS), None)
    if column in used:
        column = None
    whole = _read_columns(table, chosen[""], wish, *([column] if column else []))
    _say_columns(table, chosen[""], [*used, *([column] if column else [])], say, wish.what)
    if column is None:
        return {"": whole}
    words = [str(value).strip().lower() for value in whole.columns.pop(column).tolist()]
    unknown = sorted(set(words) - WORDS.keys())
    if unknown and wish.split is None:
        say(f"took column '{column}' for no split: it says {short(unknown[0])}")
        return {"": whole}
    return _by_words(whole, [WORDS.get(w, w) for w in words], column, unknown, say)


def _by_words(
    whole: Split, words: list[str], column: str, unknown: Sequence[str], say: Say
) -> dict[str, Split]:
    found = [word for word in ("train", "validation", "test") if word in words]
    if unknown or "train" not in found or len(found) == 1:
        few = [short(word) for word in sorted(set(words))[:5]]
        raise DataError(
            f"expected 'train', and 'test' or 'validation', in column '{column}', got {few}"
        )
    splits: dict[str, Split] = {}
    for word in found:
        rows = np.array([w == word for w in words])
        columns = {name: values[rows] for name, values in whole.columns.items()}
        splits[word] = Split(whole.z[rows], columns, whole.embedding)
    say(f"used column '{column}' as the split: " + _sizes(splits))
    return splits


def _read_columns(table: Table, chosen: Chosen, wish: _Wish, *further: str) -> Split:
    names = {**chosen.labels, **{name: name for name in further}}
    if wish.text:
        read = table.read([], [*chosen.embedding, *names.values()])
        z = _texts(chosen.embedding, read)
    else:
        read = table.read(chosen.embedding, list(names.values()))
        z = stacked(table, chosen.embedding, read)
    columns = {name: _as_labels(column, read[column]) for name, column in names.items()}
    return Split(z, columns, tuple(chosen.embedding))


def stacked(table: Table, names: Sequence[str], read: Mapping[str, Array], start: int = 0) -> Array:
    """Return the embeddings (n, h), of one column of vectors or of many of numbers.

    Args:
        table: Where they are from.
        names: The columns.
        read: What was read of them.
        start: The first row that was read, for messages.
    """
    for name in names:
        if read[name].dtype.kind in "OU":
            raise DataError(
                f"expected features that are numbers, got {read[name].dtype} in column '{name}' of "
                f"{table.source}, such as '{short(read[name].flat[0])}'"
            )
    z = read[names[0]]
    if len(names) > 1:
        if any(read[name].ndim != 1 for name in names):
            raise ShapeError(f"expected one number per row in columns {names[0]} to {names[-1]}")
        z = np.column_stack([read[name] for name in names])
    if z.ndim != 2:
        raise ShapeError(f"expected features of shape (n, h), got {z.shape} in '{names[0]}'")
    if z.dtype.kind == "f" and z.itemsize > 4:
        with np.errstate(over="ignore"):
            z = z.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(z).all(axis=1))
    if len(bad):
        where = names[int((~np.isfinite(z[bad[0]])).argmax())] if len(names) > 1 else names[0]
        raise DataError(
            f"expected finite numbers in column '{where}' of {table.source}, within {z.dtype}, got "
            f"NaN or infinity in row {start + bad[0]}"
        )
    return z


def _texts(names: Sequence[str], read: Mapping[str, Array]) -> Array:
    """Return the one column of texts."""
    (name,) = names
    if read[name].dtype.kind not in "OU":
        raise DataError(f"expected text in column '{name}', got {read[name].dtype}")
    return read[name]


def _as_labels(name: str, values: Array) -> Array:
    """Read numbers with a point as classes too: 3.0 is class 3, 0.5 is class "0.5"."""
    if values.dtype.kind != "f":
        return values
    bad = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
    if len(bad):
        raise LabelError(
            f"expected a label for every sample, but '{name}' has NaN or infinity in row {bad[0]}"
        )
    whole = (values == values.round()).all() and np.abs(values).max() < 2**53
    return values.astype(np.int64 if whole else np.str_)


def _assembled(
    splits: Mapping[str, Split], test: float | None, seed: int, origin: Origin, say: Say
) -> Features:
    """Make features of what was read; a test set is drawn where none was brought."""
    splits = dict(splits)
    if "validation" in splits and "test" not in splits:
        splits["test"] = splits.pop("validation")
        say("took the validation set as test set, since there was no other")
    if "test" not in splits:
        (whole,) = splits.values()
        share = TEST if test is None else test
        say(f"drew {share:.0%} of each class as test (seed {seed}), since there was no split")
        return Features(*part(whole.z, whole.columns, share, seed), origin)
    if test is not None:
        raise OptionError(f"there is a test set already: expected no part to draw, got {test}")
    made, names = join({name: (one.z, one.columns) for name, one in splits.items()})
    return Features(made["train"], made["test"], names, origin, validation=made.get("validation"))


def _sizes(splits: Mapping[str, Split]) -> str:
    found = [name for name in ("train", "test", "validation") if name in splits]
    return ", ".join(f"{len(splits[name].z)} {name}" for name in found)


def _say_columns(
    table: Table, chosen: Chosen, used: Iterable[str], say: Say, what: str = "embedding"
) -> None:
    first, *others = chosen.embedding
    embedding = f"{1 + len(others)} columns {first} … {others[-1]}" if others else f"'{first}'"
    learned, *kept = chosen.labels or ("none",)
    also = f", also kept: {', '.join(kept)}" if kept else ""
    say(f"{what}: {embedding}; label: '{learned}'{also}")
    taken = {*used, *chosen.embedding, *chosen.labels.values()}
    left = [name for name in table.columns if name not in taken]
    if left and used:
        more = f" and {len(left) - 5} more" if len(left) > 5 else ""
        say(f"left out columns {', '.join(left[:5])}{more}: --domain keeps one as labels")


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
    embedding: str | None,
    label: str | None,
    domains: Sequence[str],
    split: str | None,
    drawn: float | None,
    given: Mapping[str, Path_],
    seed: int,
) -> str:
    """Write the command that makes these features again, with no path of this machine in it."""
    options = {"--embedding": embedding, "--label": label}
    words = [f"{name} {value}" for name, value in options.items() if value is not None]
    words += [f"--domain {name}" for name in domains]
    if split is not None:
        words.append(f"--split {split}")
    words += [f"--{name} FILE" for name in given]
    if split is None and not given:
        words.append(f"--test {TEST if drawn is None else drawn} --seed {seed}")
    return " ".join(["lastlayer import FILE", *words, "--out FILE"])
