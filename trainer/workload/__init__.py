"""Workload: memory and compute of a step on a rank, estimated by running it with fake tensors.

Model, strategy, optimiser, average and step are the training's own. Only data, other ranks, checkpoints and
the GPU are replaced (`fakes.py`).
"""
