"""Facts that a box reports to `box_probe.py`, within bounds, as values of the table of assumptions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from vastrun.launcher.core import Instance, Offer
from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.decisions.offer_check import BoxHardware
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.vast.conformance.assumption import Value

_PROBE = Path(__file__).with_name("box_probe.py").read_text(encoding="utf-8")
_MAX_CHARACTERS, _MAX_WORD, _MAX_KEYS, _MAX_BYTES = 16_000, 80, 16, 1 << 40
_PROBE_S = 60.0
_WORDS: Mapping[str, tuple[str, str]] = {
    "container_id": ("the machine's id", "other"),
    "key": ("present", "absent"),
    "session_key": ("present", "absent"),
}


def ask_box(remote: Remote, *arguments: str, timeout_s: float = _PROBE_S) -> Mapping[str, Any]:
    """Run the probe in the box. Raises UnreachableError, GoneError; BoxError when its answer is none."""
    words = shlex.join(("-", *arguments))
    command = f"\"$(command -v python3 || command -v python)\" {words} <<'PROBE_END'\n{_PROBE}\nPROBE_END\n"
    done = remote.run(command, timeout_s=timeout_s)
    try:
        if len(done.stdout) > _MAX_CHARACTERS:
            raise ValueError(f"{len(done.stdout)} characters")
        reply = json.loads(done.stdout.strip().rpartition("\n")[2])
    except (ValueError, RecursionError) as error:
        raise BoxError(f"the box did not describe itself: {done.stderr.strip()[-200:]!r}") from error
    if not isinstance(reply, dict):
        raise BoxError("the box did not describe itself")
    return reply


def box_values(
    reply: Mapping[str, Any], *, onstart_sha256: str, log_keys: Collection[str]
) -> dict[str, Value]:
    """Return what the probe found out, as values by assumption. What makes no sense is not there."""
    seen: dict[str, Value] = {
        f"box.{key}": words[not reply[key]]
        for key, words in _WORDS.items()
        if isinstance(reply.get(key), bool)
    }
    sha256, shell, keys = reply.get("onstart_sha256"), reply.get("shell"), reply.get("host_keys")
    if isinstance(sha256, str):
        seen["onstart.sha256"] = (
            "as ordered" if sha256 == onstart_sha256 else "other" if sha256 else "not there"
        )
    if isinstance(shell, str) and shell:
        seen["onstart.shell"] = one_line(shell)[:_MAX_WORD] or "nameless"
    for call in ("own_row", "list", "account"):
        status = reply.get(call)
        if isinstance(status, int) and status is not True and 100 <= status <= 599:
            seen[f"key.{call}"] = str(status)
    if isinstance(keys, list) and keys and all(isinstance(key, str) for key in keys[:_MAX_KEYS]):
        box, log = set(keys[:_MAX_KEYS]), set(log_keys)
        seen["log.host_keys"] = (
            "none in the log" if not log else "the same" if box == log else "some" if box & log else "others"
        )
    return seen


def key_modes(reply: Mapping[str, Any]) -> str:
    """Return owner and modes of the files of its SSH keys; empty where the box does not say."""
    modes = reply.get("key_modes")
    return one_line(modes)[:_MAX_WORD] if isinstance(modes, str) else ""


def hardware_values(box: BoxHardware, row: Instance, offer: Offer | None) -> dict[str, Value]:
    """Return how the box's hardware is to its row and its offer. What could not be read is not there."""
    gpu_gb = min((gb for _, gb in box.gpus), default=0.0)
    pairs = {
        "box.gpus": (float(len(box.gpus)), float(row.gpus)),
        "box.gpu_memory": (gpu_gb, offer.gpu_memory_gb if offer else 0.0),
        "box.memory": (box.memory_gb, row.memory_gb),
        "box.disk": (box.disk_gb, row.disk_gb),
    }
    seen: dict[str, Value] = {
        name: shown / listed for name, (shown, listed) in pairs.items() if shown and listed
    }
    if row.gpus and not box.gpus:
        seen["box.gpus"] = 0.0
    if box.cuda and row.cuda:
        seen["box.cuda"] = round(box.cuda - row.cuda, 3)
    return seen


def downloaded_bytes(reply: Mapping[str, Any]) -> int:
    """Return how much the box says that it downloaded; 0 where it does not say."""
    size = reply.get("downloaded")
    return size if isinstance(size, int) and size is not True and 0 < size <= _MAX_BYTES else 0
