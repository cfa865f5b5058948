"""Profiles that a fake box records: as rank 0 answers a request, with a trace of one event."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import asdict

from vastrun.contract import layout
from vastrun.contract.profiling import FileDigest, ProfileResponse, operations_path, trace_path

TRACE = gzip.compress(b'{"traceEvents": [{"ph": "X", "name": "step 3"}]}', mtime=0)
OPERATIONS = b"CPU operations\naten::mm\n"


def answer_profile(files: dict[str, bytes], step: int) -> None:
    """Put the trace that was requested among the files of a box, and the response."""
    files[trace_path(step)], files[operations_path(step)] = TRACE, OPERATIONS
    response = ProfileResponse(
        id=json.loads(files[layout.PROFILE_REQUEST])["id"],
        step=step,
        trace=_digest(TRACE),
        operations=_digest(OPERATIONS),
    )
    files[layout.PROFILE_RESPONSE] = json.dumps(asdict(response)).encode()


def _digest(content: bytes) -> FileDigest:
    return FileDigest(size=len(content), sha256=hashlib.sha256(content).hexdigest())
