"""Heads that read class statistics: they learn in one pass, merge, and forget exactly."""
