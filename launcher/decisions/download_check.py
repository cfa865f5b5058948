"""Download check: whether a machine reaches the internet, and how fast, by a short download on it."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import urlsplit

from vastrun.launcher.core.job import JobSpec, Resources

PYPI_FILE = (
    "https://files.pythonhosted.org/packages/65/fb/2b23769462b34398d9326081fad5655198fcf18966fcb1f1e49db44fbf31/"
    "numpy-2.3.5-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
)
"""A file of 17 MB that never changes, on the server that most set-up commands use."""
TIMEOUT_S = 60.0
"""Timeout in seconds, longer than `download_check.sh` ever takes."""
_SCRIPT = Path(__file__).with_name("download_check.sh")
_MIN_BYTES, _MAX_BYTES = 1 << 16, 16_000_000
_SECONDS = 3.0
"""Seconds for which a download at the requested speed takes."""
_SHARE = 0.5
"""Share of the requested speed that is enough: a short download does not reach full speed."""


def is_needed(spec: JobSpec) -> bool:
    """Return whether the job requests a speed, or does something that usually needs the internet."""
    urls = (spec.checkpoints.push, spec.checkpoints.start_from)
    downloads = bool(spec.setup or spec.data)
    return spec.resources.down_mbps > 0 or downloads or any(url and _is_remote(url) for url in urls)


def command(requested: Resources) -> str:
    """Return the command that measures the download on the box, in any POSIX shell; `fault` parses its
    output."""
    script = _SCRIPT.read_text(encoding="utf-8")
    return f"set -- {shlex.quote(requested.down_url or PYPI_FILE)} {_size(requested)}\n{script}"


def fault(printed: str, requested: Resources) -> str:
    """Describe how the machine's download is too slow for the job; empty when it is not, or not known."""
    words = next((line.split() for line in printed.splitlines() if line.startswith("down ")), [])
    try:
        size, began, ended = (float(word) for word in words[1:])
    except ValueError:
        return ""
    if size == 0:
        return f"it cannot download from {urlsplit(requested.down_url or PYPI_FILE).hostname}"
    seconds = max(0.01, ended - began)
    mbps = size * 8 / 1e6 / seconds
    # A short answer is an error page: the line works, and its speed is not known.
    judged = size >= _size(requested) or seconds >= _SECONDS
    if judged and mbps < requested.down_mbps * _SHARE:
        return f"{mbps:.0f} Mbit/s down instead of {requested.down_mbps:g}"
    return ""


def _size(requested: Resources) -> int:
    fitting = int(requested.down_mbps * 1e6 / 8 * _SECONDS)
    return max(_MIN_BYTES, min(fitting, _MAX_BYTES))


def _is_remote(url: str) -> bool:
    return not url.startswith(("file://", "memory://"))
