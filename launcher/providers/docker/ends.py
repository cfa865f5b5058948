"""Why a container does not run any more, by its exit code and by what it printed last."""

from __future__ import annotations

from launcher.core import Cause
from launcher.core.errors import ProviderError
from launcher.providers.docker.rows import Container

ENDED = ("exited", "dead")
_ENDS = {
    0: (Cause.LOST, "ended by itself"),
    78: (Cause.USER_ERROR, "cannot be used: its image has no SSH server, and none can be installed"),
    137: (Cause.LOST, "was killed, and not by this launcher"),
    143: (Cause.LOST, "was stopped, and not by this launcher"),
}


def end_error(container: Container, printed: str) -> ProviderError:
    """How it ended, with its cause. `printed`: its log."""
    cause, how = _ENDS.get(container.exit_code, (Cause.HOST, f"ended with exit code {container.exit_code}"))
    if container.exit_code == 137 and container.out_of_memory:
        cause, how = Cause.OUT_OF_MEMORY, "was killed by the kernel: it used more memory than it may"
    said = _last_words(printed)
    error = ProviderError(f"container {container.name} {how}{f': {said}' if said else ''}")
    error.cause = cause
    return error


def _last_words(printed: str) -> str:
    """The last line that tells more than its host keys."""
    lines = [line.strip() for line in printed.splitlines() if "SHA256:" not in line]
    return next((line[-200:] for line in reversed(lines) if line), "")
