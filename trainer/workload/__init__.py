"""Workload: what a step takes of a rank (`contract/workload.py`), found by doing it with tensors that hold nothing.

The parts are the training's own: model, strategy, optimiser, average, step. Only what a computer without GPUs,
data and other ranks lacks is stood in for (`stand_ins.py`).
"""
