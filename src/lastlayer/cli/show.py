"""The verb that shows what is in a file."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lastlayer.cli.app import DATA, app
from lastlayer.cli.text import columns, count, describe_calibration
from lastlayer.core.names import class_name, first_few, listed, printable
from lastlayer.errors import FileFormatError, MissingFileError, OptionError

if TYPE_CHECKING:
    from lastlayer.catalogue.head_cards import Abilities
    from lastlayer.data.made_by import Maker

LISTED, COLUMNS = 20, 5  # classes and columns named, unless all classes are asked for


@app.command(rich_help_panel=DATA)
def show(
    file: Annotated[
        Path, typer.Argument(help="Features, a head, the results of a study, or a table.")
    ],
    every: Annotated[bool, typer.Option("--all", help="List every class.")] = False,
    card: Annotated[
        bool, typer.Option("--card", help="Of a head: print its card, a page for an auditor.")
    ] = False,
) -> None:
    """Show what a file is: its kind, size, classes and counts, and what can be done with it."""
    from lastlayer.core.tensor_files import kind_of_file
    from lastlayer.data.tables.open_table import SUFFIXES

    if not file.exists():
        raise MissingFileError(f"no such file: {file}")
    if not card and (file.is_dir() or file.suffix == ".sqlite"):
        _show_results(file)
        return
    kind = kind_of_file(file) if file.suffix == ".safetensors" else None
    if file.suffix.lower() not in SUFFIXES:  # a head may have any name
        with suppress(FileFormatError):
            kind = kind_of_file(file)
    if card and kind != "head":
        raise OptionError(f"--card is for the file of a head, and {file} is none")
    if card:
        from lastlayer.cli.card import card_of_head

        print(card_of_head(file, None if every else LISTED), end="")
        return
    shown = {"features": _show_features, "head": _show_head}
    if kind is None:
        _show_table(file)
    elif kind in shown:
        shown[kind](file, every)
    else:
        print(f"{file}: a {printable(kind)} of lastlayer, {_size(file)}")


def _show_features(file: Path, every: bool) -> None:
    from lastlayer import load_features

    data = load_features(file)
    print(f"{file}: features, {_size(file)}\n{data}")
    for name, value in vars(data.origin).items():
        if value:
            print(f"{name}: {value}")
    print(_made_by(data.made_by))
    for column, names in data.names.items():
        first = "to learn" if column == data.label else "kept as well"
        splits = {
            s: split.labels[column] for s, split in data.splits.items() if column in split.labels
        }
        print(f"\n{column}, {first}: {count(len(names), 'class')}")
        counts = {s: y.bincount(minlength=len(names)).tolist() for s, y in splits.items()}
        print(_classes(names, counts, every))
    print("\ncan be used by: advise, compare, fit, predict, forget, run")


def _show_head(file: Path, every: bool) -> None:
    from lastlayer.catalogue.head_cards import full_name
    from lastlayer.estimator import HeadClassifier
    from lastlayer.heads.head_file import read_head

    clf = HeadClassifier.load(file)
    head, kept = clf.head_, read_head(file).parts
    name = full_name(head.name, str(head.options.get("mask", "none")))
    print(f"{file}: a head, {name}, {_size(file)}")
    print(f"features: {head.in_features}; preset {head.preset}")
    if clf.column_names:
        print(f"columns: {printable(first_few(clf.column_names, COLUMNS))}")
    print(_made_by(clf.maker))
    options = ", ".join(f"{k}={v}" for k, v in head.options.items() if k != "mask")
    if options:
        print(f"options: {options}")
    kind = {"U": "text", "f": "numbers"}.get(clf.classes_.dtype.kind, "whole numbers")
    named = "named" if "class_names" in kept else "without names"
    print(f"classes: {head.n_classes}, {named}; labels are {kind}")
    if clf.answers is not None:
        coarser = [str(label) for label in clf.classes_.tolist()]
        print(f"answers by {len(coarser)} coarser labels: {printable(listed(coarser))}")
    for sentence in kept.get("origin", ()):
        print(printable(str(sentence)))
    print()
    labels = head.class_names or [str(c) for c in range(head.n_classes)]
    names = [class_name(label) for label in labels]
    if head.class_counts is not None:
        about = {"samples": head.class_counts.tolist()}
        if not bool(head.seen.all()):
            marks = ["" if known else "not learned, or forgotten" for known in head.seen.tolist()]
            about |= {"": [*marks, *["not learned"] * (len(names) - len(marks))]}
    else:
        seen = [*head.seen.tolist(), *[False] * len(names)]
        about = {"": ["" if known else "not seen" for known in seen]}
    print(_classes(names, about, every))
    if head.calibration is not None:
        print(f"\n{describe_calibration(head.calibration)}", end="")
    print(f"\ncan: {', '.join(_abilities(head.abilities))}")
    if head.abilities.forgets:
        print(f"what forgetting proves: {head.proof}")


def _show_results(file: Path) -> None:
    from lastlayer.results import load_study

    folder = file.parent if file.suffix == ".sqlite" else file
    study = load_study(folder)
    path = folder / "results.sqlite"
    print(f"{folder}: the results of a study, {_size(path)}")
    print(f"{study.done.height} runs of heads, {study.replay.height} of networks")
    heads = sorted(set(study.done["head"].to_list())) if study.done.height else []
    print(f"heads: {', '.join(heads) or 'none'}")
    print("can be used by: report, export, run (which resumes it)")


def _show_table(file: Path) -> None:
    from lastlayer.data.tables.open_table import SUFFIXES, open_table

    if file.suffix.lower() not in SUFFIXES:
        raise FileFormatError(f"{file} is neither a file of lastlayer nor a table")
    for table in open_table(file).values():
        print(f"{file}: a table of another program, {_size(file)}")
        names = [f"{name} (vectors)" if n == 2 else name for name, n in table.columns.items()]
        print(f"columns: {printable(first_few(names, LISTED))}")
    print("can be used by: import, fit, predict, forget")


def _classes(names: Sequence[str], about: Mapping[str, Sequence[object]], every: bool) -> str:
    """Return a line on each class: how often it occurs in each split, or whether it was seen."""
    few = len(names) if every else min(len(names), LISTED)
    rows = [("class", *about)]
    for c in range(few):
        rows.append((names[c], *(str(n[c]) if c < len(n) else "0" for n in about.values())))
    rest = f"\n  … and {len(names) - few} more: --all lists them" if few < len(names) else ""
    return columns(rows, indent="  ") + rest


def _made_by(maker: "Maker") -> str:
    from lastlayer.data.made_by import in_words

    return f"made by: {in_words(maker) or 'unknown (import --made-by says)'}"


def _abilities(can: "Abilities") -> Iterator[str]:
    yield "keep learning"
    words = {
        "linear": "be an nn.Linear",
        "merges": "be merged with another",
        "forgets": "forget samples",
        "forgets_class": "forget a class",
    }
    yield from (word for name, word in words.items() if getattr(can, name))


def _size(file: Path) -> str:
    return f"{file.stat().st_size:,} bytes"
