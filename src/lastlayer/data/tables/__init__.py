"""Tables of embeddings that other programs wrote: named columns, read when they are asked for."""

from lastlayer.data.tables.open_table import SUFFIXES, open_table
from lastlayer.data.tables.table import Array, Table

__all__ = ["SUFFIXES", "Array", "Table", "open_table"]
