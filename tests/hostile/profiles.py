"""Lies about a profile: what a box may answer to `vastrun profile`, and send in place of a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.hostile.lie import STEERING, Content, endless
from vastrun.contract.profiling import MAX_TABLE_BYTES, MAX_TRACE_BYTES

_EVIL = {"size": 4, "sha256": "0" * 64}


@dataclass(frozen=True)
class ProfileLie:
    """What a box answers instead of the truth."""

    response: Mapping[str, Any] = field(default_factory=dict)
    """Values in place of the honest ones."""
    written: Content | None = None
    """The response as it is read, instead of all that."""
    trace: Content | None = None
    """What is read of the trace."""
    harmless: bool = False
    """The profile may come whole."""


PROFILE_LIES: Mapping[str, ProfileLie] = {
    "response to nobody": ProfileLie({"id": "0" * 16}),
    "response whose id is a path": ProfileLie({"id": "../../../../evil"}),
    "response without an id": ProfileLie({"id": None}),
    "response that is nothing": ProfileLie(written=b"null"),
    "response that is no JSON": ProfileLie(written=STEERING.encode()),
    "response that is deep": ProfileLie(written=b"[" * 900),
    "response that is large": ProfileLie(written=b'{"id": "' + b"x" * 100_000 + b'"}'),
    "response without an end": ProfileLie(written=endless(b"x")),
    "response of neither a trace nor a fault": ProfileLie({"trace": None}),
    "response without a table": ProfileLie({"operations": None}),
    "step before the first": ProfileLie({"step": -1}),
    "step beyond any number": ProfileLie({"step": 10**400}),
    "step that is a path": ProfileLie({"step": "../../../evil"}),
    "step that is no number": ProfileLie({"step": float("nan")}),
    "step of another trace": ProfileLie({"step": 999}),
    "fault that steers": ProfileLie({"fault": STEERING, "trace": None}),
    "fault that is long": ProfileLie({"fault": "x" * 900, "trace": None}),
    "fault that is a list": ProfileLie({"fault": ["why"], "trace": None}),
    "fault with half a character": ProfileLie({"fault": "\ud800", "trace": None}),
    "fault beside a trace": ProfileLie({"fault": STEERING}, harmless=True),
    "trace of no bytes": ProfileLie({"trace": _EVIL | {"size": 0}}),
    "trace of negative size": ProfileLie({"trace": _EVIL | {"size": -1}}),
    "trace with a size that is text": ProfileLie({"trace": _EVIL | {"size": "4"}}),
    "trace larger than any trace": ProfileLie({"trace": _EVIL | {"size": MAX_TRACE_BYTES + 1}}),
    "trace that is shorter than it says": ProfileLie({"trace": _EVIL | {"size": 1 << 20}}),
    "trace that is not what is summed": ProfileLie(trace=b"evil" * 99),
    "trace whose checksum is a path": ProfileLie({"trace": _EVIL | {"sha256": "../../../../evil"}}),
    "trace without an end": ProfileLie({"trace": _EVIL | {"size": MAX_TRACE_BYTES}}, trace=endless(b"evil")),
    "table larger than any table": ProfileLie({"operations": _EVIL | {"size": MAX_TABLE_BYTES + 1}}),
}
