"""Box reader: fetches a box's status, its small files, and its response to a profile request."""

from __future__ import annotations

from vastrun.contract import layout
from vastrun.contract.profiling import MAX_REQUEST_BYTES, MAX_TABLE_BYTES, ProfileResponse
from vastrun.contract.records import RecordError, read_json
from vastrun.launcher.core import BoxStatus
from vastrun.launcher.core.errors import BoxError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_status import parse_box_status
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.ports import Remote

_STATUS = "bash onstart/status.sh"
_STATUS_S = 30.0
_CHUNK = 1 << 20


def fetch_status(remote: Remote) -> BoxStatus:
    """Fetch the box's status. Raises UnreachableError; GoneError; BoxError for an invalid response."""
    done = remote.run(_STATUS, timeout_s=_STATUS_S)
    if done.exit_code != 0:
        raise UnreachableError(f"status.sh ended with {done.exit_code}: {done.stderr.strip()[-200:]!r}")
    return parse_box_status(done.stdout)


def fetch_small_file(
    remote: Remote, path: str, max_bytes: int | None = None, budget: ExchangeBudget | None = None
) -> bytes:
    """Fetch the whole file; empty when it does not exist.

    Raises BoxError when they are more than `most`, by default than `caps` allows to that file, or more than
    the budget.
    """
    max_bytes = caps.SMALL_FILES[path] if max_bytes is None else max_bytes
    content = bytearray()
    while chunk := remote.read(path, offset=len(content), limit=min(_CHUNK, max_bytes + 1 - len(content))):
        content += chunk
        if budget is not None:
            budget.spend(size=len(chunk), memory=len(chunk))
        if len(content) > max_bytes:
            raise BoxError(f"{path} is larger than {max_bytes} bytes")
    return bytes(content)


def fetch_profile_response(remote: Remote, request_id: str) -> ProfileResponse | None:
    """Fetch the response to this request; None while there is none, or one to another request.

    Raises BoxError for an invalid response.
    """
    content = fetch_small_file(remote, layout.PROFILE_RESPONSE, MAX_REQUEST_BYTES)
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
