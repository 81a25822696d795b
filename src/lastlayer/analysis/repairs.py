"""What would repair a lost sample: its old vectors, removing later classes, either, or only both.

The samples kept, gained and never learned are counted beside the lost ones, because a head that
learns nothing loses nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis.inputs import (
    Bools,
    Floats,
    Ints,
    at_least_single,
    check_learned,
    check_samples,
    takes_arrays,
)
from lastlayer.errors import DataError, ShapeError

REPAIRS = ("old_vectors", "no_later_classes", "either", "both")
"""What the last axis of ``Losses.repairs`` counts, in its order; "both": only both together."""

FATES = ("kept", "lost", "gained", "never_learned")
"""What the last axis of ``Losses.fates`` counts, in its order."""

INTERFERENCE = ("size", "direction")
"""What the last axis of ``Losses.interference`` counts, in its order."""

_REPAIR_OF = np.array([[3, 1], [0, 2]])  # [right with old vectors, right without later classes]
_FATE_OF = np.array([[3, 2], [1, 0]])  # [right then, right now]


@dataclass(frozen=True)
class Losses:
    """Counts of test samples after each of T tasks, by class."""

    fates: NDArray[np.int64]  # (T, C, 4) of each sample whose class has come, as FATES
    repairs: NDArray[np.int64]  # (T, C, 4) of each lost one, as REPAIRS
    interference: NDArray[np.int64]  # (T, C, 2) of each that no later classes repair, alone or too


@takes_arrays
def trace_losses(weight: Floats, bias: Floats, z: Floats, y: Ints, learned: Ints) -> Losses:
    """Count what became of the test samples after each task, and what would repair the lost ones.

    *Then* is the end of the task in which a sample's class arrived, *now* the end of a later one;
    all rows compete both times, and of equal logits the first class wins. A sample is
    kept (right then and now), lost (right then only), gained (right now only) or never learned
    (neither). A lost one is tried again with

    - R, its old vectors: each class seen then gets back its row and bias, the others stay as now;
    - L, no later classes: those not seen then are removed; rows and biases stay as now.

    Right with R only: "old_vectors". With L only: "no_later_classes". With R and with L: "either".
    With neither: "both", since R and L at once make it right, always. The sum is what was lost.

    Where L makes it right, a later class stands in the way, by its size or by its direction. It is
    tried again with every later class given the norm and the bias of the sample's own: right,
    "size"; still wrong, "direction", as always where rows are normalised and there is no bias.

    The cost is that of predicting all samples T + 1 times, once for each state and once for then.

    Args:
        weight: (T, C, h) the rows after each task, such that z·weight + bias ranks classes as
            the head does; for a head that normalises its rows, normalised.
        bias: (T, C), −∞ for a class that the head cannot predict yet.
        z: (n, h) features of test samples.
        y: (n,) their classes, 0…C−1. A sample whose class never arrives is not counted.
        learned: (C,) the task in which each class first arrived, −1 for never (``first_seen``).

    Class 0 is right at first. Then its row is halved, and class 1 arrives, longer and less apt:

    >>> weight = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.5, 0.0], [0.75, 0.75]]])
    >>> bias = np.array([[0.0, -np.inf], [0.0, 0.0]])
    >>> z, y = np.array([[1.0, 0.0]]), np.array([0])
    >>> losses = trace_losses(weight, bias, z, y, learned=np.array([0, 1]))
    >>> dict(zip(FATES, losses.fates[1, 0].tolist()))
    {'kept': 0, 'lost': 1, 'gained': 0, 'never_learned': 0}
    >>> dict(zip(REPAIRS, losses.repairs[1, 0].tolist()))
    {'old_vectors': 0, 'no_later_classes': 0, 'either': 1, 'both': 0}
    >>> dict(zip(INTERFERENCE, losses.interference[1, 0].tolist()))
    {'size': 1, 'direction': 0}
    """
    _check(weight, bias, z, y, learned)
    weight, bias, z = at_least_single(weight), at_least_single(bias), at_least_single(z)
    z, y, then = _in_order(weight, bias, z, y.astype(np.int64), learned)
    since, right_then = learned[y], then.argmax(axis=1) == y
    found = []
    for task in range(len(bias)):
        n, old = (int(np.searchsorted(since, task, side)) for side in ("right", "left"))
        now = z[:old] @ weight[task].T + bias[task]
        right_now = np.concatenate([now.argmax(axis=1) == y[:old], right_then[old:n]])
        fate = _FATE_OF[right_then[:n].astype(int), right_now.astype(int)]
        lost = np.flatnonzero(fate == FATES.index("lost"))  # none of them came with this task
        of, seen = y[lost], (learned >= 0) & (learned <= since[lost, None])
        repair = _repairs(then[lost], now[lost], seen, of)
        hidden = (repair == REPAIRS.index("no_later_classes")) | (repair == REPAIRS.index("either"))
        part = _interference(now[lost][hidden], weight[task], bias[task], seen[hidden], of[hidden])
        found.append(
            (
                _count(y[:n], fate, len(learned), len(FATES)),
                _count(of, repair, len(learned), len(REPAIRS)),
                _count(of[hidden], part, len(learned), len(INTERFERENCE)),
            )
        )
    return Losses(*(np.stack(counts) for counts in zip(*found, strict=True)))


@takes_arrays
def repair_shares(repairs: Ints) -> NDArray[np.float64]:
    """Return the Shapley shares of old vectors and of no later classes in what was lost: (…, 2).

    What either repairs, and what only both repair, is halved between them (``shapley_values``).
    NaN where nothing was lost.

    Args:
        repairs: (…, 4) counts, as ``REPAIRS``.

    >>> repair_shares(np.array([4, 1, 2, 1])).tolist()
    [0.6875, 0.3125]
    """
    if repairs.shape[-1:] != (len(REPAIRS),):
        raise ShapeError(f"repairs must have the shape (…, {len(REPAIRS)}), got {repairs.shape}")
    halves = repairs[..., 2:].sum(axis=-1, keepdims=True) / 2
    with np.errstate(invalid="ignore"):  # 0/0: nothing was lost
        shares: NDArray[np.float64] = (repairs[..., :2] + halves) / repairs.sum(-1, keepdims=True)
    return shares


def _in_order(
    weight: Floats, bias: Floats, z: Floats, y: Ints, learned: Ints
) -> tuple[Floats, Ints, Floats]:
    """Return z, y and the old logits of samples whose class arrives, in order of arrival."""
    rows = [np.flatnonzero(learned[y] == task) for task in range(len(bias))]
    then = [z[of] @ weight[task].T + bias[task] for task, of in enumerate(rows)]
    order = np.concatenate(rows)
    return z[order], y[order], np.concatenate(then)


def _count(y: Ints, kind: Ints, n_classes: int, n_kinds: int) -> NDArray[np.int64]:
    """Count samples by class and kind: (C, kinds)."""
    counts = np.bincount(y * n_kinds + kind, minlength=n_classes * n_kinds)
    return counts.reshape(n_classes, n_kinds)


def _repairs(then: Floats, now: Floats, seen: Bools, y: Ints) -> Ints:
    """Try both repairs on lost samples, from (m, C) logits and which classes were seen then."""
    old_vectors = np.where(seen, then, now).argmax(axis=1) == y
    no_later = np.where(seen, now, -np.inf).argmax(axis=1) == y
    repair: Ints = _REPAIR_OF[old_vectors.astype(int), no_later.astype(int)]
    return repair


def _interference(now: Floats, weight: Floats, bias: Floats, seen: Bools, y: Ints) -> Ints:
    """Try later classes at the size of the sample's own: 0 where that makes it right, else 1."""
    norm = np.linalg.norm(weight, axis=1)
    ratio = norm[y, None] / np.where(norm > 0, norm, 1)
    # Normalised rows differ in length by rounding alone, which does not count.
    ratio = np.where(np.abs(ratio - 1) < 16 * np.finfo(norm.dtype).eps, 1, ratio)
    can_win = np.isfinite(bias)
    finite, height = np.where(can_win, now, 0), np.where(can_win, bias, 0)
    sized = finite + (ratio - 1) * (finite - height) + (height[y, None] - height)
    right = np.where(seen, now, np.where(can_win, sized, -np.inf)).argmax(axis=1) == y
    direction: Ints = (~right).astype(np.int64)
    return direction


def _check(weight: Floats, bias: Floats, z: Floats, y: Ints, learned: Ints) -> None:
    check_samples(z, y, weight)
    fit = weight.ndim == 3 and bias.shape == weight.shape[:2] and learned.shape == bias.shape[1:]
    if not fit or not len(bias):
        raise ShapeError(
            "weight must have the shape (T, C, h), bias (T, C) and learned (C,), with T at least "
            f"1, got {weight.shape}, {bias.shape} and {learned.shape}"
        )
    check_learned(learned, len(bias))
    if not np.isfinite(weight).all() or not (bias < np.inf).all():
        raise DataError("weight must be finite and bias below ∞: has this head diverged?")
