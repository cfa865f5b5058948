"""look(): what stands on a box now; small_file(): a file without a checksum, whole or none."""

from __future__ import annotations

from vastrun.contract import layout
from vastrun.contract.profiling import MAX_REQUEST_BYTES, MAX_TABLE_BYTES, ProfileResponse
from vastrun.contract.records import RecordError, read_json
from vastrun.launcher.core import BoxStatus
from vastrun.launcher.core.errors import BoxError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_status import box_status_of
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.ports import Remote

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


def profile_response(remote: Remote, request_id: str) -> ProfileResponse | None:
    """Return the response to this request; None while there is none, or only that to another request.

    Raises BoxError for a response that makes no sense.
    """
    content = small_file(remote, layout.PROFILE_RESPONSE, MAX_REQUEST_BYTES)
    if not content:
        return None
    try:
        response: ProfileResponse = read_json(ProfileResponse, content)
    except RecordError as error:
        raise BoxError(f"{layout.PROFILE_RESPONSE}: {error}") from error
    if response.id != request_id:
        return None
    if not response.fault and (response.trace is None or response.operations is None):
        raise BoxError(f"{layout.PROFILE_RESPONSE} names neither a trace nor a fault")
    if response.operations and response.operations.size > MAX_TABLE_BYTES:
        raise BoxError(f"{layout.PROFILE_RESPONSE}: a table of more than {MAX_TABLE_BYTES} bytes")
    return response
