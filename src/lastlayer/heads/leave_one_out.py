"""Leave-one-out answers: what a head would say of each of its rows, had it not learned that row."""

from collections import Counter
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from lastlayer.core.tensors import check_label_kind, check_range, ends, row_hashes
from lastlayer.errors import DataError, OptionError
from lastlayer.heads.answering import can_win, ready
from lastlayer.heads.changes import check_able
from lastlayer.heads.class_names import called

if TYPE_CHECKING:
    from lastlayer.heads.head import Head

LEAST = 1e-11  # of 1 − leverage: what is left of a row that decides its own answer is rounding


def leave_one_out(head: "Head", z: Tensor, y: Tensor, copies: Tensor | None) -> Tensor:
    """Return the logits (n, n_classes) of learned rows, each without itself and its copies.

    >>> import lastlayer as ll
    >>> head = ll.make_head("mean", in_features=1)
    >>> z, y = torch.tensor([[0.0], [2.0], [9.0]]), torch.tensor([0, 0, 1])
    >>> head.observe(z, y)
    >>> head.leave_one_out(z, y).tolist()
    [[-2.0, -9.0], [-2.0, -7.0], [-8.0, -inf]]
    """
    check_able(head, "leaves_out", "leave its rows out")
    with head.lock:
        z = ready(head, z)
        check_label_kind(y, len(z))
        z, y = z.to(head.seen.device), y.to(device=head.seen.device, dtype=torch.int64)
        if not len(y):
            return z.new_zeros(0, head.n_classes, dtype=torch.float64)
        check_range(*ends(y))
        if copies is None:
            copies = count_copies(z, y)
        else:
            check_label_kind(copies, len(z))
            copies = copies.to(y)
        counts = _check_learned(head, y, copies)
        logits = torch.empty(len(y), head.n_classes, dtype=torch.float64, device=y.device)
        # Those of which there are as many copies together: what depends on that is made once.
        for rows in copies.argsort(stable=True).split(_at_once(head)):
            part = head._leave_one_out(z[rows], y[rows], copies[rows])
            logits[rows] = part.double().masked_fill(~can_win(head), -torch.inf)
        if head.preset == "exact":
            alone = (counts[y] == copies).nonzero().flatten()
            logits[alone, y[alone]] = -torch.inf
    return logits


def count_copies(z: Tensor, y: Tensor) -> Tensor:
    """Return how many of some rows (n, h) are equal to each, itself among them, in label too.

    >>> count_copies(torch.tensor([[1.0], [2.0], [1.0], [1.0]]), torch.tensor([0, 0, 0, 1]))
    tensor([2, 1, 2, 1])
    """
    keys = list(zip(row_hashes(z).tolist(), y.tolist(), strict=True))
    times = Counter(keys)
    return torch.tensor([times[key] for key in keys], device=y.device)


def check_leverage(left: Tensor) -> None:
    """Refuse rows without which nothing could be computed: 1 − leverage (n,) is zero."""
    bad = ~(left > LEAST)
    if bool(bad.any()):
        raise DataError(
            f"a row cannot be left out where it alone varies in a direction, as {int(bad.sum())} "
            f"of {len(left)} do: make the head with a larger penalty or shrinkage"
        )


def _at_once(head: "Head") -> int:
    return max(head.piece // max(head.n_classes, head.in_features), 1)


def _check_learned(head: "Head", y: Tensor, copies: Tensor) -> Tensor:
    """Refuse rows that the head cannot have learned; return how many it has of each class."""
    counts = cast(Tensor, head.class_counts)  # which every head that leaves rows out knows
    known = y < head.n_classes
    learned = torch.where(known, counts[y.clamp(max=head.n_classes - 1)], 0)
    if bool((copies < 1).any()):
        raise OptionError("copies must be at least 1 for each row, itself among them")
    wrong = (copies > learned).nonzero().flatten()
    if len(wrong):
        c = int(y[wrong[0]])
        raise DataError(
            f"rows to leave out must have been learned with their labels, but row {int(wrong[0])} "
            f"is there {int(copies[wrong[0]])} ×, and {int(learned[wrong[0]])} rows of "
            f"{called(head, c)} were learned"
        )
    if bool((copies == counts.sum()).any()):
        raise DataError("a row cannot be left out where it is all that was learned")
    return counts
