"""Workload: what a step takes of a rank, found by doing it with tensors that hold nothing.

The parts are the training's own: model, strategy, optimiser, average, step. Only what a computer has not that
has neither GPUs nor data nor other ranks is stood in for (`fakes.py`).
"""
