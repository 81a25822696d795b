"""Heads in use: what lives, and what watches over it."""
