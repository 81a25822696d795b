"""A change that happens whole or not at all: after any error a module is as it was before."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

_LOCAL = threading.local()
# .log: what was overwritten in place since the outermost block began; None outside of blocks
# .thrown_away: whether modules are given up after an error, so that nothing is kept
# .spare, .used: memory for what is kept until it ends; fresh memory each time would be slow
_SPARE = 1 << 23  # numbers that are kept free for the next block
_NOTHING = torch.empty(0, dtype=torch.float64)


class AllOrNothing:
    """Put a module and its parts back if the block ends with an error, an interrupt among them.

    It remembers which objects the attributes and buffers were, which costs next to nothing. So a
    change must make new objects. Where that is too dear, ``overwrite`` keeps the rows it replaces;
    and rows beyond what counts as filled may be written freely.

    >>> import torch
    >>> module = nn.Module()
    >>> module.register_buffer("x", torch.zeros(3))
    >>> try:
    ...     with AllOrNothing(module):
    ...         overwrite(module.x, torch.tensor([1]), torch.ones(1))
    ...         module.x = torch.cat([module.x, module.x])
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     module.x
    tensor([0., 0., 0.])
    """

    __slots__ = ("_before", "_begin", "_module")

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __enter__(self) -> None:
        log: list[Any] | None = getattr(_LOCAL, "log", None)
        self._begin = -1 if log is None else len(log)
        self._before = [(part, part.__dict__.copy(), part._buffers.copy(), part._modules.copy())
                        for part in _parts(self._module)]  # fmt: skip
        if log is None:
            _LOCAL.log, _LOCAL.used = [], 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            log = _LOCAL.log
            while len(log) > max(self._begin, 0):
                tensor, rows, old = log[-1]
                if rows is None:
                    tensor.copy_(old)
                else:
                    tensor.index_copy_(0, rows, old)
                log.pop()
            for part, attributes, buffers, modules in self._before:
                part._buffers.clear()
                part._buffers.update(buffers)
                part._modules.clear()
                part._modules.update(modules)
                for name in part.__dict__.keys() - attributes.keys():
                    del part.__dict__[name]
                part.__dict__.update(attributes)
        if self._begin < 0:
            _LOCAL.log = None
            if getattr(_LOCAL, "spare", _NOTHING).numel() > _SPARE:
                _LOCAL.spare = _NOTHING


@contextmanager
def thrown_away_on_error() -> Iterator[None]:
    """Keep nothing of what is overwritten in this thread: after an error modules may be torn.

    For whoever then throws them away: it saves the copies, and their memory.
    """
    before, _LOCAL.thrown_away = getattr(_LOCAL, "thrown_away", False), True
    try:
        yield
    finally:
        _LOCAL.thrown_away = before


def in_block() -> bool:
    """Return whether a change made now may have to be undone."""
    return _kept() is not None


def overwrite(
    tensor: Tensor, rows: Tensor, new: Tensor, old: Tensor | None = None, log: bool = True
) -> None:
    """Write ``new`` over some rows of a tensor in place, to be undone if the block fails.

    Args:
        tensor: what is written to.
        rows: (k,) which rows.
        new: (k, …) what they become.
        old: (k, …) what they are, if that is known already.
        log: whether to keep them; not if ``remember`` has before.
    """
    if log:
        remember(tensor, rows, old)
    tensor.index_copy_(0, rows, new)


def remember(tensor: Tensor, rows: Tensor, old: Tensor | None = None) -> None:
    """Keep some rows of a tensor, to be put back if the block fails."""
    log = _kept()
    if log is not None:
        log.append((tensor, rows, tensor[rows] if old is None else old))


def keep(tensor: Tensor) -> None:
    """Keep the whole of a tensor that is about to change in place, to be put back likewise."""
    log = _kept()
    if log is not None:
        log.append((tensor, None, _lent(tensor.shape, tensor).copy_(tensor)))


def rows_before(tensor: Tensor, rows: Tensor) -> Tensor:
    """Return rows (k, h) of a tensor, in a block, to be kept until the outermost one ends."""
    if not tensor.is_cpu:
        return tensor[rows]
    out = _lent(torch.Size((rows.numel(), *tensor.shape[1:])), tensor)
    return torch.index_select(tensor, 0, rows, out=out)


def _kept() -> list[Any] | None:
    """Return the log, if there is a block that may have to undo something."""
    return None if getattr(_LOCAL, "thrown_away", False) else getattr(_LOCAL, "log", None)


def _lent(shape: torch.Size, like: Tensor) -> Tensor:
    """Return memory until the outermost block ends: the next one gets the same again."""
    if not (like.is_cpu and like.dtype == torch.float64):
        return like.new_empty(shape)
    size, spare = shape.numel(), getattr(_LOCAL, "spare", _NOTHING)
    if _LOCAL.used + size > spare.numel():  # what was lent of the old one lives on in the log
        _LOCAL.spare = spare = like.new_empty(max(size, 2 * spare.numel()))
        _LOCAL.used = 0
    begin, _LOCAL.used = _LOCAL.used, _LOCAL.used + size
    return spare[begin : begin + size].view(shape)


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """Return a module and all in it; nn.Module's own way takes longer than a small step."""
    yield module
    for part in module._modules.values():
        if part is not None:
            yield from _parts(part)
