"""What tests with torchvision, timm and Continuum share: one thread, no network, small files."""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # a download that must fail does so at once

import torch

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # pictures

torch.set_num_threads(1)
