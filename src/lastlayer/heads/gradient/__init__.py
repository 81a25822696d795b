"""Heads trained by gradient: a layer, a mask, and one step of descent for each batch."""
