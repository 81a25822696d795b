"""Runs of heads on frozen features: what one is, how they are made, and how long it takes."""
