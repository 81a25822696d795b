"""Runs of whole networks trained end to end with replay: what one is, and how they are made."""
