"""Heads that keep features: nearest neighbours and class medians."""
