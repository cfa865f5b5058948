"""Weights: recognise files of a model's weights or checkpoint by name and size.

Standard library only.
"""

from __future__ import annotations

MIN_BYTES = 1_000_000
_SUFFIXES = (
    *(".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".onnx", ".npz", ".npy", ".h5", ".hdf5", ".pkl"),
    *(".msgpack", ".gguf", ".tar", ".distcp"),
)


def looks_like_weights(path: str, size: int) -> bool:
    """Tell whether a file of this name and size is likely to be expensive to recreate."""
    return size >= MIN_BYTES and path.lower().endswith(_SUFFIXES)
