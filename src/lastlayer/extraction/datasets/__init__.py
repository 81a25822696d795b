"""Data sets of images: who reads each, and what it gives."""
