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
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do what is asked, and look at what comes of it."""
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in self._known:
                    self.largest = max(self.largest, storage.nbytes() // tensor.element_size())
        return found
