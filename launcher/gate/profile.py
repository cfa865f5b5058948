"""profile_response_of(): what a training answers to the request of a profile."""

from __future__ import annotations

from launcher.core.errors import BoxError
from launcher.gate.reading import small_file
from launcher.ports import Remote
from trainer.contract import layout
from trainer.contract.profiling import MAX_REQUEST_BYTES, MAX_TABLE_BYTES, ProfileResponse
from trainer.contract.records import RecordError, read_json


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
