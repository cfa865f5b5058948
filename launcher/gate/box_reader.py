"""Box reader: fetches and parses what a box reports: status, evidence, slots, responses to requests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

from vastrun.contract import layout
from vastrun.contract.data_files import EXIT_OF_BLAME, DataReceipt
from vastrun.contract.outcome import ExitCode, Outcome
from vastrun.contract.records import RecordError, read_as, read_json
from vastrun.launcher.core import BoxStatus, Cause, Evidence, StepEnd
from vastrun.launcher.core.boxes import LeaseState
from vastrun.launcher.core.errors import BoxError, ProviderError, UnreachableError
from vastrun.launcher.core.labels import SlotList
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import Remote

NO_LEASE = "not there"
NEEDED_TO_START = ("bash", "base64", "gzip", "flock", "mv")
"""Programs that a container needs at its start to arm the lease."""
_OF_SUPERVISOR = ("step", "steps", "loss", "ranks", "idle_gpus")
"""Fields of a status that the supervisor writes; its file is within reach of the user's program."""
_NOT_FOUND = re.compile(r"\b(\w{1,20}): (?:command )?not found", re.ASCII)
"""Message of bash, dash and busybox for a missing program."""


def fetch_status(remote: Remote) -> BoxStatus:
    """Fetch the box's status. Raises UnreachableError; GoneError; BoxError for an invalid response."""
    done = remote.run("bash onstart/status.sh", timeout_s=30.0)
    if done.exit_code != 0:
        raise UnreachableError(f"status.sh ended with {done.exit_code}: {done.stderr.strip()[-200:]!r}")
    return parse_box_status(done.stdout)


def fetch_receipt(remote: Remote, sizes: Sequence[int]) -> DataReceipt:
    """Have the box store the data that arrived, and return what it lacks. `sizes`: of the contents.

    Raises ProviderError, with its cause; BoxError for an invalid response.
    """
    done = remote.run("bash onstart/module.sh transfer.receive", timeout_s=600.0)
    if done.exit_code != 0:
        cause = Cause.DISK if done.exit_code == EXIT_OF_BLAME["disk"] else Cause.HOST
        raise ProviderError(f"the machine cannot store the data: {done.stderr.strip()[-300:]}", cause=cause)
    try:
        receipt: DataReceipt = read_json(DataReceipt, done.stdout)
    except RecordError as error:
        raise BoxError(f"the machine does not say which data it lacks: {error}") from error
    missing = receipt.missing
    is_known = {*missing, receipt.damaged} <= {*range(len(sizes)), None} and [*missing] == sorted({*missing})
    if not is_known or not 0 <= receipt.at <= (sizes[missing[0]] if missing else 0):
        raise BoxError("the machine lacks data that are not those of the job")
    return receipt


def fetch_small_file(
    remote: Remote, path: str, max_bytes: int | None = None, budget: ExchangeBudget | None = None
) -> bytes:
    """Fetch the whole file; empty when it does not exist.

    Raises BoxError for more than `max_bytes`, by default what `caps` allows to that file, or than the
    budget.
    """
    max_bytes = caps.SMALL_FILES[path] if max_bytes is None else max_bytes
    content = bytearray()
    while chunk := remote.read(path, offset=len(content), limit=min(1 << 20, max_bytes + 1)):
        content += chunk
        if budget is not None:
            budget.spend(size=len(chunk), memory=len(chunk))
        if len(content) > max_bytes:
            raise BoxError(f"{path} is larger than {max_bytes} bytes")
    return bytes(content)


def parse_box_status(printed: str) -> BoxStatus:
    """Parse the output of one `status.sh`. Raises BoxError for invalid output."""
    try:
        document = read_json(dict[str, Any], printed)
        supervisor = read_as(Mapping[str, Any] | None, document.get("supervisor")) or {}
        training = {name: supervisor[name] for name in _OF_SUPERVISOR if name in supervisor}
        status: BoxStatus = read_as(BoxStatus, {**document, **training, "at": document.get("now")})
        if len({rank.rank for rank in status.ranks}) < len(status.ranks):
            raise RecordError("a rank is listed twice")
    except RecordError as error:
        raise BoxError(f"the machine sent an invalid status: {error}") from error
    return status


def parse_lease_state(state_file: bytes) -> str:
    """Parse the state of a lease in `lease.state`; "not there" when the file has none."""
    facts: dict[str, Any] = dict(
        line.split("=", 1) for line in state_file.decode("utf-8", "replace").split("\n") if "=" in line
    )
    state = facts.get("state", NO_LEASE)
    return state if state in get_args(LeaseState) else NO_LEASE


def parse_missing_programs(errors: bytes) -> list[str]:
    """Parse `onstart.err`: the programs that the shell did not find when the box started."""
    found = _NOT_FOUND.findall(errors.decode("utf-8", "replace"))
    return [name for name in NEEDED_TO_START if name in found]


def parse_slots(printed: str, units: int) -> SlotList:
    """Parse the list of slots of a machine with `units` units. Raises BoxError when it is invalid."""
    try:
        reply: SlotList = read_json(SlotList, printed)
        if sum(slot.units for slot in reply.slots) > units:
            raise RecordError(f"more than the machine's {units} units are in use", "slots")
        if len({slot.name for slot in reply.slots}) < len(reply.slots):
            raise RecordError("duplicate name", "slots")
    except RecordError as error:
        raise BoxError(f"the machine sent an invalid list of slots: {error}") from error
    return replace(
        reply,
        drained=_display_text(reply.drained),
        refused=_display_text(reply.refused),
        faults=tuple(map(_display_text, reply.faults)),
    )


def _display_text(text: str) -> str:
    return one_line(text).strip()


def parse_evidence(
    outcome: bytes, steps: bytes, exit_code: int | None, *, damaged: tuple[str, ...] | None = None
) -> Evidence:
    """Parse the files of evidence. An invalid file counts as missing, and is reported as `nonsense`."""
    nonsense = ""
    try:
        read = parse_outcome(outcome)
    except RecordError as error:
        read, nonsense = None, f"{layout.OUTCOME}: {error}"
    ends = parse_step_ends(steps)
    return Evidence(outcome=read, steps=ends, exit_code=exit_code, damaged=damaged, nonsense=nonsense)


def parse_outcome(content: bytes) -> Outcome | None:
    """Parse `run/outcome.json`; None when it is empty. Raises RecordError when it is not an outcome."""
    return Outcome.from_json(content) if content else None


def parse_step_ends(content: bytes) -> tuple[StepEnd, ...]:
    """Parse `run/steps.jsonl` in order; incomplete lines are skipped."""
    found = []
    for line in content.split(b"\n", caps.BOOT_STEPS)[: caps.BOOT_STEPS]:
        with suppress(RecordError):
            end: StepEnd = read_json(StepEnd, line.decode("utf-8", "replace"))
            found.append(replace(end, last_line=_display_text(end.last_line)))
    return tuple(found)


def parse_exit_code(content: bytes) -> int | None:
    """Parse `run/exit`; None when it is empty or not an exit code."""
    with suppress(ValueError):
        code: int = read_as(ExitCode, int(content))
        return code
    return None
