"""A network that only computes features: on its device, in evaluation mode, without gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lastlayer.errors import OptionError, ShapeError
from lastlayer.names import look_up


@dataclass(frozen=True)
class Frozen:
    """A network on the device where it computes.

    >>> frozen = Frozen.on(nn.Flatten(), device="cpu", precision="full")
    >>> frozen(torch.zeros(2, 3, 4, 4)).shape
    torch.Size([2, 48])
    """

    network: nn.Module
    device: torch.device
    mixed: bool  # half precision where that is safe

    @classmethod
    def on(cls, network: nn.Module, device: str, precision: str) -> "Frozen":
        """Bring a network to ``cpu``, ``cuda`` or ``auto``, to compute ``full`` or ``mixed``."""
        found = torch.cuda.is_available()
        devices = {"auto": "cuda" if found else "cpu", "cpu": "cpu", "cuda": "cuda"}
        place = torch.device(look_up(device, devices, "device"))
        mixed = look_up(precision, {"full": False, "mixed": True}, "precision")
        if place.type == "cuda" and not found:
            raise OptionError("expected a GPU for device 'cuda', but PyTorch finds none: use 'cpu'")
        if mixed and place.type != "cuda":
            raise OptionError("mixed precision needs a GPU: use precision 'full' on a CPU")
        return cls(network.to(place).eval(), place, mixed)

    @property
    def on_gpu(self) -> bool:
        """Whether images must be copied to a GPU."""
        return self.device.type == "cuda"

    def __call__(self, x: Tensor) -> Tensor:
        """Map images (n, …) to features (n, h), on the CPU."""
        with torch.inference_mode(), torch.autocast("cuda", torch.float16, enabled=self.mixed):
            z = self.network(x.to(self.device, non_blocking=True))
        if not isinstance(z, Tensor) or z.ndim < 2 or len(z) != len(x):
            found = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise ShapeError(
                f"expected features of shape ({len(x)}, h) from the network, got {found}: wrap it "
                "in a module that gives one row of features per image"
            )
        return z.flatten(1).float().cpu()
