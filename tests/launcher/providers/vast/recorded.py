"""Rows of instances as others recorded them (recordings/instances.yaml), and what they mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tests.launcher.providers.vast.recorded_offers import RECORDINGS


@dataclass(frozen=True, kw_only=True)
class RecordedInstance:
    """A recorded row and how it is to be read."""

    row: Mapping[str, Any]
    state: str
    is_idle: bool
    usd_per_hour: float = 0.0
    direct: Sequence[Any] | None = None
    proxy: Sequence[Any] | None = None
    down_gb: float = 0.0
    up_gb: float = 0.0
    up_s: float | None = None
    is_gone: bool = False
    """Its machine was destroyed."""
    fault: str | None = None
    """Cause of its failed start."""
    is_tried: bool = False
    """Whether SSH is tried a minute after its start."""


INSTANCES: Mapping[str, RecordedInstance] = {
    name: RecordedInstance(**instance)
    for name, instance in yaml.safe_load((RECORDINGS / "instances.yaml").read_text(encoding="utf-8")).items()
}
