"""A change that happens whole or not at all: after any error a module is as it was before."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

_SPARE = 1 << 23  # numbers of memory that a log keeps for the next change
_NOTHING = torch.empty(0, dtype=torch.float64)


class Lock(type(threading.RLock())):  # type: ignore[misc]
    """A re-entrant lock that a copy or a pickle has anew.

    It is entered and left in C, so that an interrupt cannot come between and leave it taken.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return Lock, ()


class GradientsAsBefore:
    """Leave gradients enabled if they were: PyTorch, interrupted, may leave them disabled."""

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()

    def __exit__(self, *_: object) -> None:
        if torch.is_grad_enabled() != self._before:
            torch.set_grad_enabled(self._before)


def learning(module: nn.Module) -> AbstractContextManager[object]:
    """Make ordinary tensors without gradients in this block, so that they can be changed later.

    PyTorch's settings are left alone where they make no difference, as for all heads of ours: an
    interrupt at the wrong moment would leave them changed for good.
    """
    if torch.is_inference_mode_enabled():
        return torch.inference_mode(False)
    has_parameters = any(part._parameters for part in _parts(module))
    return torch.no_grad() if has_parameters else nullcontext()


class AllOrNothing:
    """Put a module and its parts back if the block ends with an error, an interrupt among them.

    It remembers which objects the attributes and buffers were, which costs next to nothing. So a
    change must make new objects. Where that is too dear, a part has a ``log`` of what it
    overwrites; and rows beyond what counts as filled may be written freely.

    An interrupt may strike while ``__exit__`` itself runs, or before it begins. Then the module
    still holds the block, and the next use of the module calls ``settle``, which ends it.
    Blocks must not nest, neither two of one module nor those of a module and of its part: an inner
    one would take the outer one for one that was interrupted. Nothing checks this.

    >>> import torch
    >>> module = nn.Module()
    >>> module.register_buffer("x", torch.zeros(3))
    >>> try:
    ...     with AllOrNothing(module):
    ...         module.x = torch.cat([module.x, module.x])
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     module.x
    tensor([0., 0., 0.])
    """

    __slots__ = ("__weakref__", "_before", "_logs", "_module", "active")

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._before: list[tuple[Any, ...]] = []
        self._logs: list[Log] = []
        self.active = False  # one attribute decides whether the change counts as made

    def __enter__(self) -> None:
        if self._module.__dict__.get("disposable", False):
            return
        settle(self._module)
        self._module.__dict__["_under_way"] = self  # not active yet, so there is nothing to undo
        for part in _parts(self._module):
            if part is not self._module:
                settle(part)
            self._before.append((part, *(found.copy() for found in _dicts(part))))
            if (log := part.__dict__.get("log")) is not None:
                log.begin(self)
                self._logs.append(log)
        self.active = True

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.active = False
        elif self.active:
            self.undo()
        if self._module.__dict__.get("_under_way") is self:
            self._module.__dict__["_under_way"] = None
        for log in self._logs:
            log.end()
        # What a module was names this change in turn, and would live on until garbage is collected.
        self._before = []

    def undo(self) -> None:
        """Put everything back; it may be begun again where an interrupt cuts it short."""
        for log in self._logs:
            log.put_back()
        for part, *kept in self._before:
            for now, before in zip(_dicts(part), kept, strict=True):
                # Never empty in between: others look at what is there before they settle it.
                now.update(before)
                for name in now.keys() - before.keys():
                    del now[name]
        self.active = False


def settle(module: nn.Module) -> None:
    """Undo what an interrupt has left half done; outside of blocks only."""
    change: AllOrNothing | None = module.__dict__.get("_under_way")
    if change is not None:
        if change.active:
            change.undo()
        change.__exit__(None)


class Log:
    """What a module overwrites in place during a change, kept to be put back if it fails.

    It is owned by the module, and open as long as the change is under way. It lends memory for what
    it keeps, the same for one change after another: fresh memory each time would be slow.
    """

    __slots__ = ("_change", "_entries", "_spare", "_used", "copied", "number")

    def __init__(self) -> None:
        self._change: AllOrNothing | None = None
        self._entries: list[tuple[Tensor, Tensor | None, Tensor]] = []
        self._spare, self._used = _NOTHING, 0
        self.copied = False  # whether this change writes to a copy of what is large
        self.number = 0  # of the change: 1, 2, …

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a copy that has kept nothing."""
        return Log, ()

    @property
    def open(self) -> bool:
        """Whether a change made now may have to be undone."""
        return self._change is not None and self._change.active

    def begin(self, change: AllOrNothing) -> None:
        """Keep what this change overwrites; what an earlier one kept is given up."""
        self._entries, self._used, self.copied = [], 0, False
        self.number += 1
        self._change = change

    def end(self) -> None:
        """Give up what was kept."""
        self._change, self._entries = None, []
        if self._spare.numel() > _SPARE:
            self._spare = _NOTHING

    def put_back(self) -> None:
        """Put back everything that was overwritten, the latest first."""
        while self._entries:
            tensor, rows, old = self._entries[-1]
            if rows is None:
                tensor.copy_(old)
            else:
                tensor.index_copy_(0, rows, old)
            self._entries.pop()

    def keep(self, tensor: Tensor, rows: Tensor | None = None, old: Tensor | None = None) -> None:
        """Keep some rows (k,) of a tensor that is about to change in place, or the whole of it.

        ``old`` (k, …) is what they are, if that is known already and stays as it is.
        """
        if self.open:
            if old is None:
                old = tensor[rows] if rows is not None else self._lend(tensor.shape, tensor)
                if rows is None:
                    old.copy_(tensor)
            self._entries.append((tensor, rows, old))

    def overwrite(
        self, tensor: Tensor, rows: Tensor, new: Tensor, old: Tensor | None = None
    ) -> None:
        """Write ``new`` over some rows of a tensor in place, to be undone if the change fails."""
        self.keep(tensor, rows, old)
        tensor.index_copy_(0, rows, new)

    def copy_of(self, tensor: Tensor, rows: Tensor) -> Tensor:
        """Copy rows (k, h) of a tensor, for ``keep`` to be given them."""
        if not tensor.is_cpu:
            return tensor[rows]
        out = self._lend(torch.Size((rows.numel(), *tensor.shape[1:])), tensor)
        return torch.index_select(tensor, 0, rows, out=out)

    def _lend(self, shape: torch.Size, like: Tensor) -> Tensor:
        """Return memory until the change ends."""
        if not (like.is_cpu and like.dtype == torch.float64):
            return like.new_empty(shape)
        size = shape.numel()
        if self._used + size > self._spare.numel():  # what was lent of the old one lives on
            self._spare = like.new_empty(max(size, 2 * self._spare.numel()))
            self._used = 0
        begin, self._used = self._used, self._used + size
        return self._spare[begin : begin + size].view(shape)


def _dicts(part: nn.Module) -> tuple[dict[str, Any], ...]:
    """Return what a module's attributes, parameters, buffers and parts are kept in."""
    return part._parameters, part._buffers, part._modules, part.__dict__


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """Yield a module and all in it; nn.Module's own way takes longer than a small step."""
    yield module
    for part in module._modules.values():
        if part is not None:
            yield from _parts(part)
