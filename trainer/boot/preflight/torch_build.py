"""The torch that is installed, without the seconds that its import takes. Standard library only."""

from __future__ import annotations

import runpy
from importlib.util import find_spec
from pathlib import Path

Version = tuple[int, int]


def torch_fault(*, gpus: int) -> str:
    """Say why no job can train on so many GPUs with it; empty when it can."""
    if find_spec("torch") is None:
        return "torch is not installed: take an image that has it"
    if gpus and torch_cuda() is None:
        return "torch is built for the CPU only: take an image with CUDA"
    return ""


def torch_cuda() -> Version | None:
    """Return the CUDA that torch was built for."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    cuda = runpy.run_path(str(Path(found.origin).with_name("version.py"))).get("cuda")
    major, _, minor = (cuda or "").partition(".")
    return (int(major), int(minor or 0)) if major.isdigit() else None
