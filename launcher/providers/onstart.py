"""Start script of a container: the lease, compressed to fit Vast's field, for any POSIX shell."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable
from pathlib import Path

from vastrun.launcher.core.errors import ProviderError

MAX_BYTES = 4000
"""Maximum size of the script. Vast's documents disagree about the limit; the lowest is 4,048 characters."""
BOX = "vastrun"
"""The box's folder, relative to the home of an SSH session."""
_PACKED = "@PACKED@"


def onstart_text(lease: str) -> str:
    """Return the script that unpacks the lease into the box and arms it; idempotent.

    The text depends on the lease alone. Raises ProviderError when it is too long.
    """
    # mtime=0: gzip's timestamp would change the text, and with it the identity of the template on Vast.
    packed = gzip.compress(f"{_strip_comments(lease.splitlines())}\n".encode(), mtime=0)
    text = _template().replace(_PACKED, base64.b64encode(packed).decode())
    if len(text.encode()) >= MAX_BYTES:
        raise ProviderError(f"the start script has {len(text.encode())} bytes; Vast accepts {MAX_BYTES}")
    return text


def readable_text(lease: str) -> str:
    """Return the content of `onstart_text` in readable form: the script, then the lease with its comments."""
    size = len(onstart_text(lease).encode())
    script = _template().replace(_PACKED, "PACKED_LEASE")
    return (
        f"# The machine runs this script of {size} bytes at each start. PACKED_LEASE is the text below,\n"
        "# sent without comments and indentation, compressed with gzip and encoded with base64.\n\n"
        f"{script}\n# lease.sh\n\n{lease}"
    )


def _template() -> str:
    shebang, *lines = Path(__file__).with_name("onstart.sh").read_text(encoding="utf-8").splitlines()
    return f"{shebang}\n{_strip_comments(lines)}\n"


def _strip_comments(script: Iterable[str]) -> str:
    """Remove comment lines and indentation from a script."""
    lines = [line.strip() for line in script]
    return "\n".join(line for line in lines if line and not line.startswith("#"))
