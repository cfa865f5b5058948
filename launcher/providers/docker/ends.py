"""Why a container does not run any more, by its exit code and by what it printed last."""

from __future__ import annotations

from launcher.errors import ProviderError
from launcher.model import Cause
from launcher.providers.docker.rows import Container

ENDED = ("exited", "dead")
_ENDS = {
    0: (Cause.LOST, "ended by itself"),
    78: (Cause.USER_ERROR, "cannot be a box: its image can have no SSH server"),
    137: (Cause.LOST, "was killed, and not by this launcher"),
    143: (Cause.LOST, "was stopped, and not by this launcher"),
}


def end_error(container: Container, printed: str) -> ProviderError:
    """How it ended, with its cause. `printed`: its log."""
    cause, how = _ENDS.get(container.exit_code, (Cause.HOST, f"ended with exit code {container.exit_code}"))
    if container.exit_code == 137 and container.out_of_memory:
        cause, how = Cause.OUT_OF_MEMORY, "was killed by the kernel: it used more memory than it may"
    last = next(
        (line.strip() for line in reversed(printed.splitlines()) if line.strip()), "it printed nothing"
    )
    error = ProviderError(f"container {container.name} {how} ({last[-200:]})")
    error.cause = cause
    return error
