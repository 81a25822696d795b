"""Changes of a head beyond one batch: several as one, two heads in one, samples taken out."""

import operator
from collections.abc import Iterable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from lastlayer.catalogue.head_cards import able
from lastlayer.core.checks import expect, kind_of, short, whole
from lastlayer.core.tensors import MOST_CLASSES
from lastlayer.errors import (
    ArgumentError,
    DataError,
    ImpossibleError,
    LabelError,
    MergeError,
    UnsupportedError,
)
from lastlayer.heads.class_names import called, joint_names
from lastlayer.heads.records import joint_records
from lastlayer.heads.undo import AllOrNothing, GradientsAsBefore, learning, settle
from lastlayer.heads.weights import GONE, check_weights, without_light_rows

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

H = TypeVar("H", bound="Head")
ALIKE = "fit the second like the first (lastlayer fit --like HEAD, or ll.fit(data, like=head))"


def check_able(head: "Head", ability: str, what: str) -> None:
    """Refuse what a head cannot do exactly with its options; name the heads that can."""
    if not getattr(head.abilities, ability):
        raise UnsupportedError(
            f"this '{head.name}' head cannot {what} exactly: {head._why_not(ability)}; with their "
            f"default options these heads can: {', '.join(able(ability))}"
        )


def observe(head: "Head", z: Tensor, y: Tensor, weight: Any) -> None:
    """Let a head learn from one batch."""
    if weight is not None:
        observe_all(head, [(z, y, weight)], 0)
        return
    z, y, most = head._check_batch(z, y)
    with head.lock:
        if head._under_way is not None:
            settle(head)
        if most >= 0:
            head._observe(z, y, most)


def observe_all(head: "Head", batches: Iterable[tuple[Any, ...]], n_classes: int) -> None:
    """Let a head learn from several batches, or from none of them."""
    n_classes = whole(n_classes, "n_classes", least=0, most=MOST_CLASSES)
    expect(batches, Iterable, "batches", "pairs of features and labels")
    with head.lock:
        settle(head)
        with AllOrNothing(head), learning(head):
            if n_classes > head.n_classes:
                head._grow(n_classes)
            for batch in batches:
                if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                    raise ArgumentError(
                        "a batch must be a pair (z, y), or (z, y, sample_weight), got "
                        f"{kind_of(batch)}"
                    )
                take(head, *batch)


def take(head: "Head", z: Tensor, y: Tensor, weight: Any = None) -> None:
    """Check a batch and learn from it, as part of a change."""
    z, y, most, weights = _checked(head, z, y, weight)
    if most >= 0:
        head._take(z, y, most, *weights)


def _checked(
    head: "Head", z: Tensor, y: Tensor, weight: Any
) -> tuple[Tensor, Tensor, int, tuple[Tensor, ...]]:
    """Check a batch; return it without rows of weight 0, its largest label or −1, and weights."""
    z, y, most = head._check_batch(z, y)
    if most < 0 or weight is None:
        return z, y, most, ()
    check_able(head, "weighs", "take weights")
    z, y, heavy = without_light_rows(z, y, check_weights(weight, len(y)))
    return z, y, int(y.max()) if len(y) else -1, () if heavy is None else (heavy,)


def merge(head: H, other: H, columns: Tensor | None = None) -> H:
    """Return what a head that had observed the data of both would be, numbered as the first is.

    ``columns`` (h,) says which column of ``other`` each column of ``head`` is; None: the same one.
    """
    _check_alike(head, other)
    check_able(head, "merges", "be merged")
    # In one order, whichever of two threads merges which with which.
    first, second = sorted((head, other), key=id)
    with first.lock, second.lock, GradientsAsBefore(), learning(head):
        head._settle()
        other._settle()
        names, numbers = joint_names(head, other)
        if numbers is not None or columns is not None:
            other = _rearranged(other, numbers, columns)
        merged = head._merge(other)
        merged._class_names = names
        merged.records = joint_records(head, other)
        merged.calibration = head.calibration or other.calibration
        merged._mark_changed()
    return merged


def _check_alike(head: "Head", other: "Head") -> None:
    """Refuse to merge heads of another kind or with other settings; name what differs."""
    if type(other) is not type(head) or other.name != head.name:
        raise MergeError(
            f"two heads must be of one kind to be merged, got '{head.name}' and '{other.name}'"
        )
    if other.in_features != head.in_features:
        raise MergeError(
            f"two heads must have learned features of one size to be merged, got "
            f"{head.in_features} and {other.in_features} columns"
        )
    own, theirs = head.settings, other.settings
    differ = [
        f"{name} is {short(own.get(name))} in the first and {short(theirs.get(name))} in the second"
        for name in {**own, **theirs}
        if own.get(name) != theirs.get(name) and name != "seed"
    ]
    if own.get("seed") != theirs.get("seed"):
        differ.append("they were drawn with different seeds")
    if differ:
        raise MergeError(
            f"two '{head.name}' heads must have the same settings to be merged, but "
            f"{', '.join(differ)}: {ALIKE}"
        )


def _rearranged(head: H, numbers: list[int] | None, columns: Tensor | None) -> H:
    """Return a copy whose class c has ``numbers[c]``, and whose columns are in another order."""
    made = deepcopy(head)
    classes = list(range(made.n_classes))
    if numbers is not None:
        class_of = {number: c for c, number in enumerate(numbers[: made.n_classes])}
        n_classes = max(class_of, default=-1) + 1
        if n_classes > made.n_classes:
            # Numbers in between belong to the other head: they become classes without samples.
            empty = iter(range(made.n_classes, n_classes))
            made._grow(n_classes)
            class_of |= {c: next(empty) for c in range(n_classes) if c not in class_of}
        classes = [class_of[c] for c in range(n_classes)]
    made._rearrange(torch.tensor(classes, dtype=torch.int64, device=made.seen.device), columns)
    return made


def forget(head: "Head", z: Tensor, y: Tensor, weight: Any) -> None:
    """Take samples out of a head; after an error it is as before."""
    check_able(head, "forgets", "forget samples")
    z, y, most, weights = _checked(head, z, y, weight)
    if most < 0:
        return
    with head.lock:
        head._settle()
        if most >= head.n_classes:
            raise _unknown_class(head, most)
        _check_counts(head, y, *weights)
        try:
            with AllOrNothing(head), learning(head):
                head._forget(z, y, *weights)
                _mark_forgotten(head)
        except ImpossibleError as error:
            of = "" if error.c is None else f" of {called(head, error.c)}"
            n = len(y) if error.c is None else int((y == error.c).sum())
            these = "this sample" if n == 1 else f"these {n} samples"
            raise DataError(
                f"cannot forget {these}{of}: {error.reason}; nothing was changed"
            ) from None


def forget_class(head: "Head", y: int) -> None:
    """Take a class out of a head."""
    check_able(head, "forgets_class", "forget a class")
    try:
        number = operator.index(y)
    except TypeError:
        raise _unknown_class(head, y) from None
    with head.lock:
        head._settle()
        if isinstance(y, bool) or not 0 <= number < head.n_classes:
            raise _unknown_class(head, y)
        with AllOrNothing(head), learning(head):
            head._forget_class(number)
            stays = torch.arange(head.n_classes, device=head.seen.device) != number
            head.seen = head.seen & stays
            _mark_forgotten(head)


def _mark_forgotten(head: "Head") -> None:
    """Note what the order of rows has left its traces in: a calibration that lives, and a watch."""
    if head.calibration is not None:
        head.calibration = head.calibration.after_forgetting()
    if "watch" in head.records:
        head.records = {**head.records, "watch": {**head.records["watch"], "forgot": True}}
    head._mark_changed(calibrated=True)


def _check_counts(head: "Head", y: Tensor, weight: Tensor | None = None) -> None:
    """Refuse to forget more samples of a class than were learned."""
    counts = head.class_counts
    if counts is None:
        return
    asked = y.bincount(weight, minlength=head.n_classes)
    if bool((asked > counts * (1 + GONE)).any()):
        c = int((asked - counts).argmax())
        raise DataError(
            f"cannot forget {asked[c]:g} samples of {called(head, c)}: only {counts[c]:g} were "
            "learned"
        )


def _unknown_class(head: "Head", y: object) -> LabelError:
    return LabelError(f"a class must be from 0 to {head.n_classes - 1}, got {short(y)}")
