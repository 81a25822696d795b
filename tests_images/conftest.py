"""What tests with torchvision, timm and Continuum share: one thread, no network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # a download that must fail does so at once

import torch

torch.set_num_threads(1)
