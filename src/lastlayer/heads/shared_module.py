"""Modules whose state grows, keeps its precision, and may be used by several threads at once."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn

from lastlayer.core.checks import short
from lastlayer.core.packed import lower_copy
from lastlayer.errors import StateError
from lastlayer.heads.undo import AllOrNothing, GradientsAsBefore, Lock, learning, settle


class Resizable(nn.Module):
    """A module that grows with its stream: ``load_state_dict`` accepts any number of classes.

    Only the first dimension may differ, the classes; another feature size is refused as usual.
    """

    symmetric: ClassVar[tuple[str, ...]] = ()  # buffers of which only the lower triangle counts
    copies_share: ClassVar[bool] = False  # whether its tensors are replaced, never overwritten

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name, own in self.named_buffers(recurse=False):
            arriving = state_dict.get(prefix + name)
            if arriving is None or arriving.dim() != own.dim():
                continue
            if arriving.shape[1:] != own.shape[1:]:
                continue
            if name in self.symmetric and own.is_cpu and arriving.dtype == own.dtype:
                # A copy onto itself is none: what is above a diagonal takes no memory.
                state_dict[prefix + name] = lower_copy(arriving.cpu())
                setattr(self, name, state_dict[prefix + name])
            else:
                setattr(self, name, torch.zeros_like(arriving, device=own.device))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def add_rows(self, n: int, *names: str) -> None:
        """Let buffers have n rows, the new ones zero."""
        for name in names:
            old = cast(Tensor, self._buffers[name])
            more = old.new_zeros(n - old.shape[0], *old.shape[1:])
            self._buffers[name] = torch.cat([old, more])

    def drop_learning(self) -> None:
        """Drop what only learning needs, of a copy that only answers."""


class Precise(Resizable):
    """A module that follows to another device, but stays in float64: ``float()`` loses nothing."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(lambda t: t.to(fn(t.flatten()[:0]).device), recurse)  # type: ignore[no-untyped-call]
        return self


class SharedModule(Resizable):
    """A module that any number of threads may use, and that changes whole or not at all.

    Every public method that reads or changes what was learned takes ``lock``, and settles first
    what an interrupt has left half done. State, copies and pickles are those of one moment.
    """

    name: str
    disposable = False  # whether it is thrown away after an error, so that nothing need be undone

    def __init__(self) -> None:
        super().__init__()
        self.lock = Lock()
        self._under_way: AllOrNothing | None = None  # what is under way, or was interrupted

    def _settle(self) -> None:
        """Undo what an interrupt left half done; outside of changes only."""
        settle(self)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return what it has learned by name; copy it before anything else is learned."""
        with self.lock:
            self._settle()
            return super().state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load the state of such a head, with any number of classes; on error stay as before."""
        if isinstance(state_dict, Mapping):
            state_dict = {name: _without_gradient(value) for name, value in state_dict.items()}
        with self.lock, GradientsAsBefore():
            settle(self)
            try:
                with AllOrNothing(self):
                    return super().load_state_dict(state_dict, *args, **kwargs)
            except (AttributeError, KeyError, RuntimeError) as error:
                raise StateError(
                    f"this is not the state of such a '{self.name}' head: {short(error, 300)}"
                ) from error

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        with self.lock:
            super()._load_from_state_dict(*args, **kwargs)
            self._mark_changed()

    def _mark_changed(self) -> None:
        """Note that what follows from its state is out of date."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        with self.lock, learning(self):
            self._settle()
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy of its own, while no other thread changes it."""
        with self.lock, GradientsAsBefore(), learning(self):
            self._settle()
            made = memo[id(self)] = type(self).__new__(type(self))
            made.__dict__.update(copy.deepcopy(self.__dict__, memo))
            return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle: copies, since other threads may go on changing it."""
        return copy.deepcopy(self).__dict__


def _without_gradient(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
