"""A module whose buffers take the sizes and types of the state that is loaded into it."""

from typing import Any

import torch
from torch import nn


class Resizable(nn.Module):
    """A module that grows with its stream: ``load_state_dict`` accepts any number of classes.

    Only the first dimension may differ, the classes; another feature size is refused as usual.
    """

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name, own in self.named_buffers(recurse=False):
            arriving = state_dict.get(prefix + name)
            if arriving is None or arriving.dim() != own.dim():
                continue
            if arriving.shape[1:] == own.shape[1:]:
                setattr(self, name, torch.zeros_like(arriving, device=own.device))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
