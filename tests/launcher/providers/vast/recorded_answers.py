"""Answers of Vast as others recorded them, and what they mean. Keys and ids of accounts are replaced."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests.launcher.providers.vast.recorded_offers import RECORDINGS
from vastrun.launcher.core import errors
from vastrun.launcher.core.errors import ProviderError, VastrunError


@dataclass(frozen=True, kw_only=True)
class RecordedAnswer:
    """An HTTP answer, and the error that it is; None: a success."""

    body: Mapping[str, Any]
    status: int = 200
    error: type[VastrunError] | None = None
    text: str = ""
    """What the error says of it."""
    retry_after_s: float | None = None


def _answer(*, error: str | None = None, **content: Any) -> RecordedAnswer:
    return RecordedAnswer(error=error and getattr(errors, error), **content)


_RECORDED = yaml.safe_load((RECORDINGS / "answers.yaml").read_text(encoding="utf-8"))
CREATES: Mapping[str, tuple[RecordedAnswer, str]] = {
    name: (_answer(**content), machine)
    for name, content in _RECORDED["creates"].items()
    for machine in [content.pop("machine", "")]
}
"""Answers to a create, with the id of the machine that is then rented."""
REFUSALS: Mapping[str, RecordedAnswer] = {
    name: _answer(**content) for name, content in _RECORDED["refusals"].items()
}

HOST_OFFLINE = RecordedAnswer(
    body={"success": False, "msg": "host offline"}, error=ProviderError, text="host offline"
)
"""To a destroy: the machine is still there, and is asked for again."""

KEY_ATTACHED = RecordedAnswer(body={"success": True, "msg": "SSH key attached successfully"})


@dataclass(frozen=True, kw_only=True)
class RecordedCharge:
    """A charge, and how it is to be read."""

    row: Mapping[str, Any]
    instance_id: str
    label: str
    usd: float
    storage_usd: float
    traffic_usd: float = 0.0
    until: float = 0.0


def _item(kind: str, description: str, usd: float) -> dict[str, Any]:
    day = {"start": 1786924800, "end": 1786924800}
    return {**day, "type": kind, "source": None, "description": description, "amount": usd, "metadata": {}}


CHARGE = RecordedCharge(
    # 2026-08: one row for a day, whose start and end are the same midnight.
    row={
        "source": "instance-47912530",
        "amount": 0.123,
        "description": "Instance 47912530 Charges - 1 day",
        "type": "instance",
        "start": 1786924800,
        "end": 1786924800,
        "items": [
            _item("gpu", "GPU", 0.112),
            _item("disk", "disk", 0.011),
            _item("bwd", "0.0 GB Downloaded", 0.0),
            _item("bwu", "0.0 GB Uploaded", 0.0),
        ],
        "metadata": {"label": "job-a"},
    },
    instance_id="47912530",
    label="job-a",
    usd=0.123,
    storage_usd=0.011,
    until=1786924800.0 + 86400.0,
)
