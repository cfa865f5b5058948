"""Image contents: print this Python's versions and missing tools as a line of JSON. Imports only the stdlib.

python -m vastrun.onstart.boot.image_contents [torch=2.13.0 cuda=13.0 nccl=2.29.7]
    exits with 1 where another version is installed
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from importlib.util import find_spec
from typing import Any

TOOLS = ("curl", "ip", "py-spy", "sshd", "tini")
MODULES = ("h5py", "matplotlib", "numpy", "pynvml", "torch", "wandb")

_PATH = f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Folders in which tools are searched: the PATH of a non-login shell has no sbin."""


def contents() -> dict[str, Any]:
    """Return versions by name, None for absent ones, and the missing tools and modules as `missing`."""
    return {
        "python": platform.python_version(),
        **_torch_versions(),
        "vastrun": next((found.version for found in distributions(name="vastrun")), None),
        "missing": [name for name in TOOLS if shutil.which(name, path=_PATH) is None]
        + [name for name in MODULES if find_spec(name) is None],
    }


def _torch_versions() -> dict[str, str | None]:
    if find_spec("torch") is None:
        return {"torch": None, "cuda": None, "nccl": None}
    import torch

    cuda = torch.version.cuda
    nccl = torch.cuda.nccl.version() if cuda else None
    return {"torch": torch.__version__, "cuda": cuda, "nccl": ".".join(map(str, nccl)) if nccl else None}


def differences(found: dict[str, Any], expected: Sequence[str]) -> list[str]:
    """Return a line for each `name=version` that differs from the installed one; `name=` is not compared."""
    # The part after a `+` is the build: torch 2.13.0+cu130.
    pairs = (word.partition("=") for word in expected)
    return [
        f"{name}: {found.get(name)}, expected {value}"
        for name, _, value in pairs
        if value and (found.get(name) or "").partition("+")[0] != value
    ]


if __name__ == "__main__":
    installed = contents()
    print(json.dumps(installed))
    faults = differences(installed, sys.argv[1:])
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    sys.exit(1 if faults else 0)
