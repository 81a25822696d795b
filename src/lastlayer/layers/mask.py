"""Masks: which logits take part in training, and the cross-entropy of what is left."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from lastlayer.core.checks import expect
from lastlayer.core.names import look_up
from lastlayer.core.tensors import check_dense
from lastlayer.errors import DataError, LabelError, ShapeError

Keep = Callable[[Tensor], Tensor]  # one-hot targets (…, N, n) → 0/1, the same or (…, N, 1)


def _all(one_hot: Tensor) -> Tensor:
    return torch.ones_like(one_hot[..., :1])


def _own(one_hot: Tensor) -> Tensor:
    return one_hot


def _present(one_hot: Tensor) -> Tensor:
    return one_hot.amax(dim=-1, keepdim=True)


MASKS: Mapping[str, Keep] = {
    "none": _all,
    "single": _own,  # only the sample's own class stays
    "group": _present,  # every class that occurs in the mini-batch stays
}


def masked_cross_entropy(logits: Tensor, y: Tensor, mask: str = "none") -> Tensor:
    """Return the mean cross-entropy after masking, as the paper trains with (a scalar).

    A masked logit (n, classes) becomes 0, not −∞: it still adds exp(0) = 1 to the softmax, but its
    class gets no gradient. Of the masks, "single" leaves the sample's own class, and "group" those
    of the batch.

    >>> logits = torch.tensor([[1.0, 2.0, -1.0]], requires_grad=True)
    >>> masked_cross_entropy(logits, torch.tensor([0]), mask="single").backward()
    >>> [round(g, 3) for g in logits.grad[0].tolist()]
    [-0.424, 0.0, 0.0]
    """
    keep = look_up(mask, MASKS, "mask")
    expect(logits, Tensor, "logits", "a tensor")
    expect(y, Tensor, "labels", "a tensor")
    check_dense(logits, "logits")
    check_dense(y, "labels")
    if not logits.is_floating_point():
        raise DataError(f"logits must be a floating-point tensor, got {logits.dtype}")
    if y.device != logits.device:
        raise DataError(f"labels must be on {logits.device} as the logits are, got {y.device}")
    if logits.dim() != 2 or y.shape != logits.shape[:1]:
        raise ShapeError(
            "logits must be (n, classes) and labels (n,), "
            f"got {tuple(logits.shape)} and {tuple(y.shape)}"
        )
    y = _check_classes(y, logits.shape[1])
    one_hot = functional.one_hot(y, logits.shape[1]).mT
    return functional.cross_entropy(logits * keep(one_hot).mT, y)


def _check_classes(y: Tensor, n_classes: int) -> Tensor:
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise LabelError(f"labels must be an integer tensor, got {y.dtype}")
    if y.numel() == 0:
        raise ShapeError("there must be at least one sample, got none")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= n_classes:
        raise LabelError(f"labels must be from 0 to {n_classes - 1}, got {low} to {high}")
    return y.long()
