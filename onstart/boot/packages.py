"""Packages: install the packages of the job's program that this Python lacks, in the pinned versions.

python -m vastrun.onstart.boot.packages     in a box, with the variables of a step. Standard library only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

from vastrun.contract.job import Job
from vastrun.onstart.boot.preflight.machine import EXIT_UNFIT_IMAGE

_PINS = "requirements.txt"
_OWN_PYTHON = ("local", "pool", "slurm")
"""Providers whose machines have the user's own Python; a plug-in sets VASTRUN_KEEP_PYTHON instead."""
_NAME = re.compile(r"([A-Za-z0-9._-]+)==")


def main() -> int:
    """Install the missing packages. Return the exit status of the onstart step 25-packages."""
    folder = Job.read(Path(os.environ["VASTRUN_BOX"])).program.folder
    if folder is None or not (folder / _PINS).is_file():
        print("the job's program provides its own packages")
        return 0
    if os.environ.get("VASTRUN_KEEP_PYTHON") or os.environ.get("VASTRUN_PROVIDER") in _OWN_PYTHON:
        # Nothing is installed into the Python of the user's computer. A held machine got its packages at the
        # start of the hold, and other slots use them.
        print("using this computer's Python as it is")
        return 0
    lacking = missing(entries((folder / _PINS).read_text(encoding="utf-8")))
    if not lacking:
        print("the image has all packages")
        return 0
    if find_spec("pip") is None:
        print(f"the image lacks {', '.join(lacking)}, and pip to install them", file=sys.stderr)
        return EXIT_UNFIT_IMAGE
    print(f"the image lacks {', '.join(lacking)}: installing", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("\n".join(lacking.values()))
        file.flush()
        # Installed packages are not changed.
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        # A Linux distribution may forbid pip to change its Python (PEP 668); this container is dedicated.
        env = os.environ | {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore"}
        return subprocess.run([*command, "--requirement", file.name], env=env, check=False).returncode


def entries(text: str) -> dict[str, str]:
    """Split a requirements file: return the lines of each package, with its version and hashes."""
    # Lines of hashes are indented: each other line begins a package.
    blocks = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"(?m)^#.*\n", "", text))
    return {match[1]: block for block in blocks if (match := _NAME.match(block))}


def missing(pinned: dict[str, str]) -> dict[str, str]:
    """Return the packages of which this Python has no version."""
    return {name: block for name, block in pinned.items() if not any(distributions(name=name))}


if __name__ == "__main__":
    sys.exit(main())
