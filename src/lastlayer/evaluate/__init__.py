"""Streams shown to heads, one or thousands at once: scores, curves and costs on held-out rows."""
