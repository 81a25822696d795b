"""What all tests share: the same examples every time, on one thread, however slow the machine."""

import torch
from hypothesis import settings

settings.register_profile("lastlayer", deadline=None, derandomize=True)
settings.load_profile("lastlayer")

torch.set_num_threads(1)  # on tensors as small as these, threads only wait for one another
