"""Whole networks trained end to end with replay: training, study, and its part of a report."""
