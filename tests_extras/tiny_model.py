"""A small model of sentence-transformers, made on the spot: random weights, a handful of words."""

from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast

WORDS = ("send", "money", "card", "lost", "balance", "how", "much", "please", "help", "now")


def make(folder: Path) -> Path:
    """Save a model to a folder, as one that was downloaded would lie there."""
    inner = folder / "bert"
    inner.mkdir(parents=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(code) for code in range(97, 123)]
    pieces = [*special, *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    (inner / "vocab.txt").write_text("\n".join(pieces))
    BertTokenizerFast(str(inner / "vocab.txt")).save_pretrained(inner)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    BertModel(config).save_pretrained(inner)
    words = Transformer(str(inner), max_seq_length=32)
    SentenceTransformer(modules=[words, Pooling(16)], device="cpu").save(str(folder / "model"))
    return folder / "model"
