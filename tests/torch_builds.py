"""A torch of any build, ahead of the one that is installed here: a contributor's may have CUDA, or not."""

import os
from pathlib import Path

STUB_TORCH = Path(__file__).parent / "e2e" / "stub_torch"
"""A stand-in for torch, whose import would be most of the work of a run that does not train."""


def torch_built_for(cuda: str | None, folder: Path, version: str = "2.13.0") -> str:
    """Make one that says what it was built for and no more; return the PYTHONPATH that puts it first."""
    package = folder / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text(f"cuda = {cuda!r}\n__version__ = {version!r}\n")
    return os.pathsep.join(filter(None, [str(package.parent), os.environ.get("PYTHONPATH")]))
