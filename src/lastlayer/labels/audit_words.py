"""What an audit says, in sentences."""

import math
from typing import TYPE_CHECKING

from torch import Tensor

from lastlayer.core.names import percent
from lastlayer.labels.second_opinion import Beside

if TYPE_CHECKING:
    from lastlayer.labels.findings import Audit, Known

BLIND = 0.02  # by which left-out rows may be right more often than other rows, beyond chance
FEW_RIGHT = 0.5  # of left-out rows: if no more are right, the count may be far off
ASSUMED = (
    "The range assumes that mistakes hit all rows of a class alike. Mistakes between similar "
    "classes are counted too low, and rows that the head does not describe well too high: on "
    "real data the true number is often outside."
)


def sentences(audit: "Audit") -> tuple[str, ...]:
    """Return what was found, what matters most first."""
    n, (low, high) = audit.table.height, audit.interval
    about = "Very roughly" if audit.known.left_out < FEW_RIGHT else "About"
    count = (
        f"{about} {audit.wrong:,.0f} of {n:,} labels are wrong ({low:,.0f} to {high:,.0f}); "
        f"{audit.suspects.height:,} are more probably wrong than right."
    )
    found = [count, ASSUMED]
    if round(high) == 0 and not audit.suspects.height and about == "About":
        found = [f"None of {n:,} labels looks wrong."]
    said = [
        *found,
        f"Predicted from the other rows, {percent(audit.known.left_out)} of rows get the label "
        "that they have.",
    ]
    if audit.confusion.height and audit.confusion["rows"][0] >= 1:
        label, truth, rows = audit.confusion.row(0)
        said.append(f"Most often, rows of '{truth}' are labelled '{label}': about {rows:,.0f}.")
    exact = int((audit.duplicates["distance"] == 0).sum())
    if exact:
        said.append(f"Pairs of exact copies with different labels: {exact:,}.")
    if near := audit.duplicates.height - exact:
        said.append(f"Pairs of near copies with different labels, among the worst: {near:,}.")
    if far := audit.strange.height:
        said.append(f"Rows far from every class: {far:,}.")
    for one, other, told_apart in audit.same.head(3).rows():
        said.append(
            f"'{one}' and '{other}' may be one class: only {percent(told_apart, 0)} of their "
            "rows are closer to their own."
        )
    return tuple(said)


def warnings(
    head: str, known: "Known", beside: Beside, wrong: float, counts: Tensor, alone: int
) -> tuple[str, ...]:
    """Return what limits an audit: features that know the labels, or that cannot tell."""
    said = []
    if not beside.confirms:
        said.append(
            f"{head} alone would count {wrong:,.0f} wrong labels, but the nearest neighbours of "
            f"{beside.rows:,} rows do not confirm this: it does not describe these rows well. The "
            "count is by both, the order of rows by the head. Try another one, such as "
            "random_slda, knn or qda."
        )
    if known.left_out < FEW_RIGHT:
        said.append(
            f"Only {percent(known.left_out)} of left-out rows are right: either many labels are "
            "wrong, or these features do not show the classes. "
            "The count may be far off, either way."
        )
    guess = float(counts.max()) / float(counts.sum())
    if _is_no_better(known.left_out, known.rows, guess):
        said.append(
            f"The features hardly tell classes apart: left-out rows are right "
            f"{percent(known.left_out)} of the time, and the most frequent class is "
            f"{percent(guess)} of the rows. "
            "Little can be said of labels by these features."
        )
    if known.other is not None and known.left_out - known.other > BLIND + _chance(known):
        said.append(
            f"The audit may be blind: left-out rows are right {percent(known.left_out)} of the "
            f"time, but rows of {known.split} only {percent(known.other)}. "
            "If the features come from a network trained on these labels, "
            "it has learned the wrong ones too: take features from one that was not."
        )
    if known.other is None:
        said.append(
            "No other split has labels, so it was not checked whether the features come from a "
            "network that was trained on these labels. If they do, the audit finds next to nothing."
        )
    if alone:
        said.append(
            "1 row is the only one of its class: nothing else says what the class is, so it is not "
            "judged."
            if alone == 1
            else f"{alone} rows are the only ones of their classes, or copies of these: nothing "
            "else says what the classes are, so they are not judged."
        )
    return tuple(said)


def _chance(known: "Known") -> float:
    """Return by how much shares of rows that are alike differ at most, 999 times in 1,000."""
    hits = known.left_out * known.rows + (known.other or 0.0) * known.others
    right = hits / (known.rows + known.others)
    return 3.1 * math.sqrt(right * (1 - right) * (1 / known.rows + 1 / known.others))


def _is_no_better(right: float, n: int, guess: float) -> bool:
    """Return whether a share of n rows that are right is no better than a guess is."""
    return right <= guess + 1.645 * math.sqrt(max(guess * (1 - guess), 1e-12) / max(n, 1))
