"""look(): what stands on a box now; small_file(): a file without a checksum, whole or not at all."""

from __future__ import annotations

from launcher.core import BoxStatus
from launcher.core.errors import BoxError, UnreachableError
from launcher.gate import caps
from launcher.gate.box_status import box_status_of
from launcher.gate.budget import ExchangeBudget
from launcher.ports import Remote

_STATUS = "bash onstart/status.sh"
_STATUS_S = 30.0
_CHUNK = 1 << 20


def look(remote: Remote) -> BoxStatus:
    """Look at the box. Raises UnreachableError; GoneError; BoxError when its answer makes no sense."""
    done = remote.run(_STATUS, timeout_s=_STATUS_S)
    if done.exit_code != 0:
        raise UnreachableError(f"status.sh ended with {done.exit_code}: {done.stderr.strip()[-200:]!r}")
    return box_status_of(done.stdout)


def small_file(
    remote: Remote, path: str, most: int | None = None, budget: ExchangeBudget | None = None
) -> bytes:
    """Return the file's bytes; empty when there is none.

    Raises BoxError when they are more than `most`, by default than `caps` allows to that file, or more than
    the budget.
    """
    most = caps.SMALL_FILES[path] if most is None else most
    content = bytearray()
    while chunk := remote.read(path, offset=len(content), limit=min(_CHUNK, most + 1 - len(content))):
        content += chunk
        if budget is not None:
            budget.spend(size=len(chunk), memory=len(chunk))
        if len(content) > most:
            raise BoxError(f"{path} is larger than {most} bytes")
    return bytes(content)
