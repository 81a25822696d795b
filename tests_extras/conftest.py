"""What tests with sentence-transformers and datasets share: one thread, no network."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # a download that must fail does so at once
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import torch

torch.set_num_threads(1)
