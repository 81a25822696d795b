"""Tables of embeddings that other programs wrote: named columns, read when they are asked for."""
