"""What a container runs on every start: the lease, as a text that any shell takes and Vast's field holds."""

from __future__ import annotations

from launcher.core.errors import ProviderError

LIMIT_BYTES = 4000
"""Vast's documents disagree about theirs; the lowest they name is 4,048 characters."""
BOX = "vastrun"
"""The box's folder, in the home that an SSH session begins in."""
_END = "LEASE_END"


def onstart_text(lease: str) -> str:
    """Writes the lease into the box and arms it; safe to repeat. The box's log names its SSH host keys.

    Twice: the image may make its keys as late as that. The outer lines are plain POSIX, for Vast may hand
    them to sh. Raises ProviderError when it is too long.
    """
    text = f"""\
#!/bin/bash
export VASTRUN_INSTANCE="$CONTAINER_ID" VASTRUN_BOX="${{HOME:-/root}}/{BOX}"
touch ~/.no_auto_tmux
(for s in 0 20; do sleep $s; for k in /etc/ssh/*.pub; do ssh-keygen -lf $k; done; done)&
mkdir -p "$VASTRUN_BOX" && cd "$VASTRUN_BOX" || exit 1
cat >.lease.sh <<'{_END}'
{_short(lease)}
{_END}
mv .lease.sh lease.sh
bash lease.sh
"""
    if len(text.encode()) >= LIMIT_BYTES:
        raise ProviderError(f"the lease needs {len(text.encode())} bytes; Vast takes {LIMIT_BYTES}")
    return text


def _short(script: str) -> str:
    """The script without its comment lines and its indentation, which mean nothing to the shell."""
    lines = [line.strip() for line in script.splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("#"))
