"""A module whose buffers take on the sizes of the state that is loaded into it."""

from typing import Any

from torch import nn


class Resizable(nn.Module):
    """A module as large as the stream it has seen: ``load_state_dict`` fits any size."""

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name, own in self.named_buffers(recurse=False):
            arriving = state_dict.get(prefix + name)
            if arriving is not None and arriving.shape != own.shape:
                setattr(self, name, own.new_zeros(arriving.shape))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
