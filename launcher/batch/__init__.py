"""Batches: many runs of one job under one budget, driven by one process."""
