"""Machine: on what the figures are measured."""

import os
import platform
import subprocess
from collections import Counter
from datetime import datetime
from importlib.metadata import version
from pathlib import Path


def described() -> str:
    """Return one line: processor, cores, memory, GPUs, Python, torch, commit, date."""
    cores = len(os.sched_getaffinity(0))
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    software = f"Python {platform.python_version()}, torch {version('torch')}"
    now = datetime.now().astimezone()
    where = f"{processor()}, {cores} cores, {gib:.0f} GiB, {_gpus()}"
    return f"on {where}; {software}, commit {commit()}; {now:%Y-%m-%d %H:%M %Z}"


def processor() -> str:
    """Return the processor's name, or its kind."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _gpus() -> str:
    """Not by torch, which would open the GPUs in this process, too."""
    names = Counter(_output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines())
    return ", ".join(f"{count} {name}" for name, count in names.items()) or "no GPU"


def commit() -> str:
    """Return the commit, with a + where the working tree is not as committed."""
    return _output_of("git", "describe", "--always", "--dirty=+").strip() or "unknown"


def _output_of(*command: str) -> str:
    """Nothing where there is no such program, or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if done.returncode else done.stdout
