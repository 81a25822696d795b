"""The card of a head: one page of Markdown that says what an auditor asks of it."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from lastlayer.catalogue.head_cards import HEADS, full_name, in_plain_words
from lastlayer.cli.text import count, describe_calibration
from lastlayer.core.names import class_name, first_few, printable
from lastlayer.data.made_by import in_words
from lastlayer.estimator import HeadClassifier
from lastlayer.heads import Head
from lastlayer.heads.watch_reference import Reference
from lastlayer.live.service.about import interval
from lastlayer.live.watch.watch import Watch
from lastlayer.report.table import Cell, Table, markdown, number, plain, words

HIDDEN = ("seed", "mask")  # options that say nothing of a head, or that its name says


def card_of_head(file: Path, listed: int | None) -> str:
    """Return the card of the head in a file, with so many of its classes; None: with all."""
    clf = HeadClassifier.load(file)
    name = full_name(clf.head_.name, str(clf.head_.options.get("mask", "none")))
    parts = {
        "What it is": _kind(file, clf),
        "What it has learned": _learned(clf, listed),
        "How it was judged": _judged(clf.head_),
        "Calibration": _calibration(clf.head_),
        "Watch": _watch(clf),
        "What it can do": _abilities(clf.head_),
        "How to use it": _use(file, clf),
    }
    sections = (f"## {title}\n\n" + "\n".join(lines) for title, lines in parts.items())
    return "\n\n".join([f"# Card of {_text(file.name)}: {name}", *sections]) + "\n"


def _kind(file: Path, clf: HeadClassifier) -> Iterator[str]:
    head, known = clf.head_, HEADS.get(clf.head_.name)
    if known is not None:
        yield f"- Head: `{head.name}`, after {_text(known.source)}. It {in_plain_words(head.name)}."
        yield f"- When to use it: {_text(known.use)}."
        yield f"- Logit of class i: `{known.formula}`. It keeps {known.state}."
    options = ", ".join(f"{k}={v}" for k, v in head.options.items() if k not in HIDDEN)
    yield f"- Settings: preset {head.preset}{f', {_text(options)}' if options else ''}."
    made = _text(in_words(clf.maker)) or "unknown"
    yield f"- Features: {head.in_features} numbers for each row, made by: {made}."
    if columns := clf.column_names:
        yield f"- Columns: {first_few([_text(name) for name in columns])}."
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    yield f"- File: {file.stat().st_size:,} bytes, SHA-256 `{digest}`."


def _learned(clf: HeadClassifier, listed: int | None) -> Iterator[str]:
    head = clf.head_
    for sentence in clf.origin_ or ["From what, is not recorded: it learned from arrays."]:
        yield f"- {_text(sentence[:1].upper() + sentence[1:])}{'' if sentence[-1:] == '.' else '.'}"
    if "change" in head.records:
        yield f"- As head of a service, it has learned through change {head.records['change']}."
    if deltas := sum(map(len, head.records.get("deltas", {}).values())):
        yield f"- Merged into it: {count(deltas, 'delta')} of other servers."
    counts = head.class_counts
    rows = "an unknown number of rows" if counts is None else f"{float(counts.sum()):,.10g} rows"
    known = int(head.seen.sum())
    kind = "text" if clf.classes_.dtype.kind in "OU" else "numbers"
    yield f"- Now in it: {rows} of {count(known, 'class')}, whose labels are {kind}."
    yield ""
    yield _classes(head, listed)


def _classes(head: Head, listed: int | None) -> str:
    """Return a table of classes: their rows, how they were judged, and which it has not."""
    names = head.class_names or [str(c) for c in range(head.n_classes)]
    counts, seen, reference = head.class_counts, head.seen.tolist(), _reference(head)
    header = ["class", "rows learned"]
    if reference is not None:
        header += ["rows judged by", "% of them right"]
    rows = []
    for c, name in enumerate(names[:listed]):
        learned = c < len(seen) and seen[c]
        cells = [words(class_name(name)), words("not learned, or forgotten")]
        if learned:
            cells[1] = words("not counted") if counts is None else _whole(float(counts[c]))
        if reference is not None:
            by = int(reference.rows[c]) if c < len(reference.rows) else 0
            right = 100 * (1 - reference.wrong[c] / by) if by else None
            cells += [_whole(by), number(right, digits=1)]
        rows.append(cells)
    rest = len(names) - len(rows)
    caption = f"The first {len(rows)} classes; --all lists {rest} more" if rest else "Its classes"
    return markdown(Table(("classes",), caption, tuple(header), rows)).rstrip()


def _whole(n: float) -> Cell:
    """Return a cell with a count, which is whole unless rows weigh."""
    return Cell(f"{n:,.10g}", n)


def _reference(head: Head) -> Reference | None:
    """Return the rows that it was calibrated with, summed up, if its file has them."""
    found = head.calibration
    return None if found is None or not found.reference else Reference.read(found.reference)


def _judged(head: Head) -> Iterator[str]:
    reference, judged = _reference(head), head.records.get("judged", {})
    if reference is not None:
        n = int(reference.rows.sum())
        right = n - int(reference.wrong.sum())
        low, high = interval(right, n)
        yield (
            f"- Of {n:,} rows that it had not learned when it was calibrated, it got "
            f"{100 * right / n:.1f} % right (95 %: {100 * low:.1f} to {100 * high:.1f})."
        )
        if head.calibration is not None and (head.calibration.stale or head.calibration.living):
            yield "- It may have changed since: that is how good it was then."
    for key, value in judged.items():
        yield f"- {_text(str(key))}: {_text(str(value))}"
    if reference is None and not judged:
        yield (
            "- Nothing is recorded. `lastlayer calibrate HEAD ROWS` judges it on labelled rows "
            "that it has not learned."
        )


def _calibration(head: Head) -> Iterator[str]:
    found = head.calibration
    if found is None:
        yield (
            "- It is not calibrated: its probabilities are its own, and it cannot tell strange "
            "rows."
        )
        return
    said = describe_calibration(found)
    yield f"- {said[:1].upper()}{said[1:]}."
    if not found.stale:
        limits = found.usual_limits().items()
        shown = ", ".join(f"{limit:.4g} for {100 * float(share):.0f} %" for share, limit in limits)
        if shown:
            yield f"- Novelty beyond which a row is unknown, by share of known rows: {shown}."


def _watch(clf: HeadClassifier) -> Iterator[str]:
    if "watch" not in clf.head_.records:
        yield "- It is not being watched."
        return
    for line in str(Watch(clf).report()).splitlines():
        if line:
            yield f"{'  ' * line.startswith(' ')}- {_text(line)}"


def _abilities(head: Head) -> Iterator[str]:
    can = head.abilities
    keeps = "every row that it has learned" if can.keeps_samples else "no row, only sums of them"
    if head.passes is None:
        keeps = "no row, only weights trained by them"
    yield f"- Rows of the data in its file: {keeps}."
    rows = (
        ("Forget rows as if it had never seen them", can.forgets),
        ("Forget a class without its rows", can.forgets_class),
        ("Be merged with another of the same settings", can.merges),
        ("Learn in any order with the same result", can.order_free),
    )
    yield from (f"- {what}: {'yes' if able else 'no'}." for what, able in rows)
    if can.forgets:
        yield f"- What forgetting proves: {_text(head.proof)}."


def _use(file: Path, clf: HeadClassifier) -> Iterator[str]:
    head, label = clf.head_, " --label COLUMN" * bool(clf.column_names)
    known = head.calibration is not None and not head.calibration.stale
    yield "```sh"
    yield f"lastlayer predict {file.name} ROWS --out labels.csv{' --unknown 0.05' * known}"
    yield f"lastlayer fit ROWS --head {file.name}{label}"
    if head.abilities.forgets:
        yield f"lastlayer forget {file.name} ROWS{label}"
    yield "```"


def _text(text: str) -> str:
    """Return text without control characters and markup."""
    return plain(printable(text))
