"""look(remote): one Sighting of a box, from what its status.sh prints."""

from __future__ import annotations

import json
from typing import Any

from launcher.errors import UnreachableError
from launcher.model import RankSighting, Sighting
from launcher.ports import Remote

_COMMAND = "bash onstart/status.sh"
_TIMEOUT_S = 30.0


def look(remote: Remote) -> Sighting:
    """What stands on the box now. Raises UnreachableError, also when the answer makes no sense; GoneError."""
    done = remote.run(_COMMAND, timeout_s=_TIMEOUT_S)
    try:
        return _sighting(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError) as error:
        said = (done.stderr or done.stdout).strip()[-200:]
        raise UnreachableError(f"the box's status cannot be read ({error}): {said!r}") from error


def _sighting(seen: dict[str, Any]) -> Sighting:
    supervisor = seen.get("supervisor") or {}
    return Sighting(
        at=float(seen["now"]),
        box=str(seen["box"]),
        exit_code=seen.get("exit_code"),
        lease=str(seen.get("lease") or "none"),
        lease_ends_at=seen.get("lease_ends_at"),
        onstart_step=str(seen.get("onstart_step") or ""),
        step=int(supervisor.get("step") or 0),
        steps=int(supervisor.get("steps") or 0),
        loss=supervisor.get("loss"),
        log_bytes=int(seen.get("log_bytes") or 0),
        free_mb=seen.get("free_mb"),
        ranks=tuple(_rank(rank) for rank in supervisor.get("ranks", ())),
    )


def _rank(seen: dict[str, Any]) -> RankSighting:
    return RankSighting(
        rank=int(seen["rank"]),
        pid=seen.get("pid"),
        step=int(seen.get("step") or 0),
        phase=str(seen.get("phase") or ""),
        age_s=float(seen.get("age_s") or 0.0),
    )
