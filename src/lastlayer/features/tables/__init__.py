"""Tables of embeddings that other programs wrote: named columns, read when they are asked for."""

from lastlayer.features.tables.opening import SUFFIXES, open_table
from lastlayer.features.tables.table import Array, Table

__all__ = ["SUFFIXES", "Array", "Table", "open_table"]
