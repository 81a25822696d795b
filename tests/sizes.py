"""The size of the largest tensor that is made on the way."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Sizes(TorchDispatchMode):
    """Notes the elements of the largest tensor made by the thread that enters it; views are none.

    Args:
        known: tensors that are there already, whose views do not count.
    """

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()
        self.largest = 0
        self._known = {_place(tensor) for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what is asked, and look at what comes of it."""
        found = func(*args, **(kwargs or {}))
        there = self._known | {_place(tensor) for tensor in _tensors((args, kwargs))}
        for tensor in _tensors(found):
            if _place(tensor) not in there:
                size = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.largest = max(self.largest, size)
        return found


def _tensors(of: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(of) if isinstance(leaf, torch.Tensor)]


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
