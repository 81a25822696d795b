"""Frozen backbones: how each is built, weighted, and given its images."""
