"""The device to compute on, chosen in one place."""

import torch

from lastlayer.core.checks import expect
from lastlayer.core.names import look_up
from lastlayer.errors import OptionError


def choose_device(name: str) -> torch.device:
    """Return the device that a name stands for; refuse a GPU where there is none.

    ``auto`` is a GPU if PyTorch finds one, else the CPU.
    """
    expect(name, str, "device", "'auto', 'cpu' or 'cuda'")
    found = torch.cuda.is_available()
    devices = {"auto": "cuda" if found else "cpu", "cpu": "cpu", "cuda": "cuda"}
    device = torch.device(look_up(name, devices, "device"))
    if device.type == "cuda" and not found:
        raise OptionError("PyTorch finds no GPU: use device 'cpu' or 'auto' instead of 'cuda'")
    return device
