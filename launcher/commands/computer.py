"""Checks of this computer: writable folders, free disk and memory, a Python that can train."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_PROBE_S = 30.0
_PROBE = Path(__file__).with_name("python_probe.py")


def write_fault(folder: Path) -> str | None:
    """Say why nothing can be written there; None when it can."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        return error.strerror or str(error)
    return None


def free_gb(folder: Path) -> float | None:
    """Return the free disk in GB at the folder, which need not exist yet; None when unknown."""
    try:
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free / 1e9
    except OSError:
        return None


def free_memory_mb(proc: Path = Path("/proc")) -> float | None:
    """Return the memory available to programs of this computer, in MB; None when that is unknown."""
    try:
        text = (proc / "meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d{1,15}) kB$", text, re.MULTILINE | re.ASCII)
    return int(found[1]) * 1024 / 1e6 if found else None


def python_fault(python: str) -> str | None:
    """Say why that Python cannot run the trainer; None when it can."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE.read_text(encoding="utf-8"), "torch", "numpy", "h5py"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_S,
        )
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_S:.0f} s"
    except OSError as error:
        return error.strerror or str(error)
    except ValueError:
        return f"it ended with {done.returncode}: {done.stderr.strip()[-200:]}"
    if tuple(found["version"]) < (3, 11):
        return f"it is Python {'.'.join(map(str, found['version']))}; 3.11 or newer is needed"
    return f"it has no {', '.join(found['missing'])}" if found["missing"] else None


def private_words(state: Path) -> Mapping[str, str]:
    """Return names and folders that identify this computer's user, each with its replacement.

    A name of three letters is a part of too many words.
    """
    names = {socket.gethostname(): "<computer>"}
    with suppress(KeyError, OSError):  # in a container, whose user has no name
        names[getpass.getuser()] = "<user>"
    known = {name: instead for name, instead in names.items() if len(name) > 3}
    return {**known, str(state): "<state>", str(Path.home()): "~"}
