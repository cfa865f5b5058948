"""The gate: what a workstation prints becomes typed values, or is rejected as no answer.

Whatever a program on a workstation wrote into its box arrives here: no value of it can raise a limit, name
another machine, or steer the terminal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import Allowance, ExchangeBudget
from vastrun.launcher.gate.text import one_line

BOX_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,99}(?:\.[0-9a-f]{8})?\.[0-9a-f]{8}", re.ASCII)
"""RUN, the ledger where the label has one, and a token."""
_ALLOWANCE = Allowance(items=2000, what="lines", memory=caps.COMMAND_BYTES)
_GPUS = re.compile(r"-|\d{1,2}(?:,\d{1,2}){0,63}", re.ASCII)
_WHOLE = re.compile(r"\d{1,11}", re.ASCII)
_KB = re.compile(r"\d{1,14}", re.ASCII)
_MAX_REASON_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class Box:
    """A run's folder on a workstation."""

    name: str
    is_armed: bool
    """Its lease is at work."""
    rented_at: float
    """Epoch seconds by the workstation's clock; 0: it does not say."""
    gpus: tuple[int, ...]
    """Indexes of its GPUs."""


@dataclass(frozen=True, kw_only=True)
class MachineAnswer:
    """What one verb of machine.sh answered."""

    boxes: Sequence[Box] = ()
    free_gb: float = 0.0
    """Free disk where the boxes are."""
    refused: str = ""
    """Why no box was made; empty: it was."""
    is_gone: bool = False
    gpus: tuple[int, ...] = field(default=())
    """Of the box that was asked for."""


def parse_answer(printed: str, machine: str) -> MachineAnswer:
    """Parse what machine.sh printed. Raises UnreachableError when it is cut short or malformed."""
    budget = ExchangeBudget(_ALLOWANCE, now=time.monotonic, sender=machine, error=_malformed)
    budget.spend(items=printed.count("\n"), memory=len(printed))
    rows = printed.rstrip("\n").split("\n")
    if rows[-1] != "@":
        raise _malformed(f"{machine}: truncated output")
    boxes: dict[str, Box] = {}
    values: dict[str, str] = {}
    for row in rows[:-1]:
        kind, _, rest = row.partition(" ")
        if kind == "box":
            box = _parse_box(rest, machine)
            if box is not None and boxes.setdefault(box.name, box) is not box:
                raise _malformed(f"{machine}: two boxes with one name")
        elif kind in ("disk", "refused", "gone", "gpus"):
            values[kind] = rest
        else:
            raise _malformed(f"{machine}: malformed output {one_line(row[:80])!r}")
    return MachineAnswer(
        boxes=tuple(boxes.values()),
        free_gb=_parse_kb(values.get("disk", "0"), machine) * 1024 / 1e9,
        refused=one_line(values.get("refused", "")[:_MAX_REASON_CHARACTERS]).strip(),
        is_gone="gone" in values,
        gpus=_parse_gpus(values.get("gpus", "-")) or (),
    )


def _parse_box(row: str, machine: str) -> Box | None:
    """None: a folder with a name that vastrun never gives."""
    fields = row.split(" ")
    if not BOX_NAME.fullmatch(fields[0]):
        return None
    if len(fields) != 4 or fields[1] not in ("0", "1"):
        raise _malformed(f"{machine}: malformed box {one_line(row[:80])!r}")
    # The program of a run may write these two: what makes no sense says nothing, and hides no box.
    rented_at = int(fields[2]) if _WHOLE.fullmatch(fields[2]) else 0
    return Box(
        name=fields[0],
        is_armed=fields[1] == "1",
        rented_at=float(rented_at),
        gpus=_parse_gpus(fields[3]) or (),
    )


def _parse_gpus(text: str) -> tuple[int, ...] | None:
    if not _GPUS.fullmatch(text):
        return None
    return () if text == "-" else tuple(int(index) for index in text.split(","))


def _parse_kb(text: str, machine: str) -> int:
    if not _KB.fullmatch(text):
        raise _malformed(f"{machine}: malformed disk {one_line(text[:80])!r}")
    return int(text)


def _malformed(text: str) -> UnreachableError:
    return UnreachableError(text, cause=Cause.PROVIDER)
