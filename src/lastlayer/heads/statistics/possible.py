"""Whether samples can have been in class statistics: what remains without them must be possible.

A request to forget that passes may still be wrong, since statistics do not know their samples.
What can be proven is that no set of samples has the mean, scatter or spread that would remain.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lastlayer.core.blas import factor_in_place
from lastlayer.core.packed import lower_copy, symmetric
from lastlayer.errors import DataError, ImpossibleError
from lastlayer.heads.weights import GONE

if TYPE_CHECKING:
    from lastlayer.heads.statistics.class_statistics import ClassStatistics

PRECISION = 1e-6  # how wrong, beside the spread of the data that stay, forgetting may leave them

_EPS = torch.finfo(torch.float64).eps
# Times what rounding does in one step: forgetting one after another adds it up, and means lose more
# digits the fewer samples are left. What was never observed is beyond by many more powers of ten.
_MARGIN = 1e4
_MEANS = 100.0  # the same for means, of which the rounding is known better
_RANK = 1024  # features up to which eigenvalues are counted, which costs more than a factor


def check_whole_classes(
    z: Tensor,
    y: Tensor,
    count: Tensor,
    mean: Tensor,
    rounding: float,
    weight: Tensor | None = None,
) -> None:
    """Refuse all samples of a class, if their mean is not that of the class."""
    weight = count.new_ones(len(y)) if weight is None else weight
    size = torch.zeros_like(count).index_add_(0, y, weight)
    for c in (((size - count).abs() <= GONE * count) & (size > 0)).nonzero().flatten().tolist():
        own = y == c
        rows, share = z[own.to(z.device)].to(mean), weight[own] / size[c]
        away = float((share @ rows - mean[c]).abs().max())
        largest = float(torch.maximum(rows.abs().max(), mean[c].abs().max()))
        if away > _MEANS * (rounding + len(rows) * _EPS * largest):
            raise ImpossibleError(
                "they would be all of its samples, but their mean is not that of the class", c
            )


def slack(before: Tensor, count: Tensor, away: float, worn: float = 0.0) -> Tensor:
    """Return how wrong rounding may have made sums of squares: anything smaller may be zero.

    They are those of ``count`` samples, ``before`` anything was taken off. A mean may be wrong by
    ``away``: a square of size q, off by e, is wrong by 2e√q + e². ``worn`` is how wrong adding up
    has left them.
    """
    whole = before.clamp(min=0)
    off = 2 * away * (whole * count).sqrt() + count * away**2
    return _MARGIN * (worn + _EPS * whole + off)


def check_scatter(lower: Tensor, directions: int, least: float, c: int | None = None) -> None:
    """Refuse a scatter that no samples have: one with a negative direction, or with too many.

    For one row at d from the mean of n, this is dᵀS⁺d ≤ 1 − 1/n with d in the range of S. Of what
    remains, ``lower`` (h, h) is the lower triangle, of class ``c`` if of one alone; its samples can
    vary in so many ``directions``, and what is below ``least`` may be rounding.
    """
    h = lower.shape[0]
    least = max(least, h * _EPS * float(lower.diagonal().abs().max()))  # as a factor needs it
    negative = "what would remain has a negative variance, so some of them were never observed"
    if directions >= h or h > _RANK:
        remains = lower_copy(lower)
        remains.diagonal().add_(least)
        if bool(factor_in_place(remains)):
            raise ImpossibleError(negative, c)
        return
    values = torch.linalg.eigvalsh(symmetric(lower))
    if float(values[0]) < -least:
        raise ImpossibleError(negative, c)
    if int((values > least).sum()) > directions:
        raise ImpossibleError(
            "what would remain varies in more directions than its samples can, so some of them "
            "were never observed",
            c,
        )


def check_spread(left: Tensor, count: Tensor, least: Tensor, weighted: bool) -> None:
    """Refuse sums of squares (n_classes, …) that are negative, or that one sample alone has.

    They are ``left`` of so many samples; what is below ``least`` may be rounding. ``weighted``:
    some weighed other than whole numbers, so that two may count as one.
    """
    few = (count == 0 if weighted else count <= 1).reshape(-1, *(1 for _ in left.shape[1:]))
    bad = (left < -least) | (few & (left > least))
    if bool(bad.any()):
        c = int(bad.reshape(len(bad), -1).any(dim=1).int().argmax())
        raise ImpossibleError(
            "what would remain is less than nothing, so some of them were never observed", c
        )


def slack_of(statistics: "ClassStatistics", z: Tensor) -> Tensor:
    """Return ``slack`` of each class, or () of all, before rows (n, h) are taken off."""
    s = statistics
    largest = max(float(s.mean.abs().max()), *(float(end.abs()) for end in z.aminmax()))
    away, worn = _EPS * largest, math.sqrt(float(s.wear))
    count = s.count
    if s.kind == "none":  # its wear is that of a mean
        return slack(s.spread, count, away + worn)
    traces = s.scatter.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return slack(traces, count.sum() if s.kind == "pooled" else count, away, worn)


def check_possible(statistics: "ClassStatistics", y: Tensor, least: Tensor) -> None:
    """Refuse statistics that no samples could have after those of classes ``y`` were taken off."""
    s = statistics
    if s.kind == "none":
        check_spread(s.spread, s.count, least, bool(s.weighted))
        return
    # In which directions n samples of a class vary: in n − 1, but that n is unknown where a count
    # is a sum of weights that are no whole numbers.
    free = (s.count - 1).clamp(min=0)
    if bool(s.weighted):
        free = torch.where(s.count > 0, float(s.mean.shape[1]), 0.0)
    if s.kind == "pooled":
        check_scatter(s.scatter, int(free.sum()), float(least))
    else:
        for c in y.unique().tolist():
            check_scatter(s.scatter[c], int(free[c]), float(least[c]), c)


def precision(statistics: "ClassStatistics") -> float:
    """Return how wrong rounding may have made statistics, relative to the spread of the data."""
    s = statistics
    count = s.count
    own = s.mean - (s.overall_mean() if int((count > 0).sum()) > 1 else 0)
    between = float((own.square().sum(dim=1) * count).sum())
    wrong = math.sqrt(float(s.wear))
    if s.kind == "none":  # only its means decide
        whole = math.sqrt(between / (s.total or 1.0))
    else:
        whole = between + max(float(s.squares()), 0.0)
    return wrong / whole if whole > 0 else float(wrong > 0)


def check_precision(statistics: "ClassStatistics") -> None:
    """Refuse statistics of which rounding has left too little."""
    if (wrong := precision(statistics)) > PRECISION:
        raise DataError(
            "cannot forget exactly: the data seen were so much larger than what remains that "
            f"rounding is {wrong:.0e} of it, and at most {PRECISION:.0e} is allowed; make a new "
            "head and let it observe what remains"
        )
