"""What tests with sentence-transformers, datasets and Ray share: one thread, no network."""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # a download that must fail does so at once
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "shards"))  # piles of shards

import torch

torch.set_num_threads(1)
