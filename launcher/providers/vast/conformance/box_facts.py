"""What a box tells of itself to `box_probe.py`, within bounds, as values of the table of assumptions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from launcher.core import Instance, Offer
from launcher.core.errors import BoxError
from launcher.decisions.offer_check import BoxHardware
from launcher.gate.text import one_line
from launcher.ports import Remote
from launcher.providers.vast.conformance.tape import Value

_PROBE = Path(__file__).with_name("box_probe.py").read_text(encoding="utf-8")
_MOST_CHARACTERS, _LONGEST_WORD, _MOST_KEYS = 16_000, 80, 16
_PROBE_S = 60.0
_CALLS = ("own_row", "list", "account")
_MOST_BYTES = 1 << 40
_LONGEST_LEASE_S = 1e9


def ask_box(remote: Remote, *arguments: str, timeout_s: float = _PROBE_S) -> Mapping[str, Any]:
    """Run the probe in the box. Raises UnreachableError, GoneError; BoxError when its answer is none."""
    words = shlex.join(("-", *arguments))
    command = f"\"$(command -v python3 || command -v python)\" {words} <<'PROBE_END'\n{_PROBE}\nPROBE_END\n"
    done = remote.run(command, timeout_s=timeout_s)
    try:
        if len(done.stdout) > _MOST_CHARACTERS:
            raise ValueError(f"{len(done.stdout)} characters")
        told = json.loads(done.stdout.strip().rpartition("\n")[2])
    except (ValueError, RecursionError) as error:
        raise BoxError(f"the box does not say what it is: {done.stderr.strip()[-200:]!r}") from error
    if not isinstance(told, dict):
        raise BoxError("the box does not say what it is")
    return told


def box_values(
    told: Mapping[str, Any], *, onstart_sha256: str, log_keys: Collection[str]
) -> dict[str, Value]:
    """Return what the probe found out, as values by assumption. What makes no sense is not there."""
    seen: dict[str, Value] = {}
    sha256 = told.get("onstart_sha256")
    if isinstance(sha256, str):
        right = sha256 == onstart_sha256
        seen["onstart.sha256"] = "as ordered" if right else "other" if sha256 else "not there"
    shell = told.get("shell")
    if isinstance(shell, str) and shell:
        seen["onstart.shell"] = one_line(shell)[:_LONGEST_WORD] or "nameless"
    for name, key, words in (
        ("box.container_id", "container_id", ("the machine's id", "other")),
        ("box.key", "key", ("present", "absent")),
        ("box.session_key", "session_key", ("present", "absent")),
    ):
        if isinstance(told.get(key), bool):
            seen[name] = words[0] if told[key] else words[1]
    for call in _CALLS:
        status = told.get(call)
        if isinstance(status, int) and status is not True and 100 <= status <= 599:
            seen[f"key.{call}"] = str(status)
    keys = told.get("host_keys")
    if isinstance(keys, list) and keys and all(isinstance(key, str) for key in keys[:_MOST_KEYS]):
        seen["log.host_keys"] = _beside(set(keys[:_MOST_KEYS]), set(log_keys))
    return seen


def lease_seconds(told: Mapping[str, Any]) -> float | None:
    """Return how old the box's lease is; None where none runs, or it does not say."""
    age_s = told.get("lease_s")
    if isinstance(age_s, bool) or not isinstance(age_s, int | float) or not 0 <= age_s <= _LONGEST_LEASE_S:
        return None
    return float(age_s)


def hardware_values(box: BoxHardware, row: Instance, offer: Offer | None) -> dict[str, Value]:
    """Return how the box's hardware is to its row and its offer. What could not be read is not there."""
    pairs = (
        ("box.gpus", float(len(box.gpus)), float(row.gpus)),
        (
            "box.gpu_memory",
            min((gb for _, gb in box.gpus), default=0.0),
            offer.gpu_memory_gb if offer else 0.0,
        ),
        ("box.memory", box.memory_gb, row.memory_gb),
        ("box.disk", box.disk_gb, row.disk_gb),
    )
    seen: dict[str, Value] = {name: shown / listed for name, shown, listed in pairs if shown and listed}
    if row.gpus and not box.gpus:
        seen["box.gpus"] = 0.0
    if box.cuda and row.cuda:
        seen["box.cuda"] = round(box.cuda - row.cuda, 3)
    return seen


def downloaded_bytes(told: Mapping[str, Any]) -> int:
    """Return how much the box says that it downloaded; 0 where it does not say."""
    size = told.get("downloaded")
    return size if isinstance(size, int) and size is not True and 0 < size <= _MOST_BYTES else 0


def _beside(box: Collection[str], log: Collection[str]) -> str:
    if not log:
        return "none in the log"
    return "the same" if set(box) == set(log) else "some" if set(box) & set(log) else "others"
