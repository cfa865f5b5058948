"""Slots: create, list and remove the shares of a held machine. One process at a time changes them.

slots/NAME/            the slot's box, with the files of docs/box.md
slots/NAME/slot.json   the request, and the units of the machine
slots/NAME/slot.env    the environment of its commands: onstart/slot.sh
slots/.drained         the reason why the machine accepts no further slots
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.records import read_json, write_atomically, write_json
from vastrun.onstart.holding.cleanliness import clean_up
from vastrun.onstart.holding.machine import HeldBox
from vastrun.onstart.optional_files import read_text

_MARGIN_S = 30.0
"""Seconds before the end of the machine's lease at which a slot's lease has ended the slot."""


@dataclass(frozen=True, kw_only=True)
class SlotRequest:
    """The launcher's request for a slot."""

    name: str
    id: str
    """Value of VASTRUN_INSTANCE of its processes."""
    label: str
    units: int
    gpus: int
    memory_gb: float = 0.0
    lease: str
    """Text of the lease script."""
    env: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class BoxSlot:
    """An existing slot: `slot.json`."""

    name: str
    id: str
    label: str
    rented_at: float
    units: tuple[int, ...]
    """Numbers of its parts of the machine."""
    gpus: tuple[str, ...] = ()
    memory_mib: int = 0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SlotResponse:
    """The response of a command: one line of JSON."""

    is_ready: bool = False
    """True when the machine is held."""
    drained: str = ""
    """Reason why it accepts no further slots; empty: it does."""
    refused: str = ""
    """Reason why the requested slot was not created."""
    slots: tuple[dict[str, object], ...] = ()
    faults: tuple[str, ...] = ()
    """Texts on what ended slots left on the machine."""


@contextmanager
def slot_lock(box: Path) -> Iterator[None]:
    """Lock the slots: no other process creates or removes one meanwhile."""
    folder = box / layout.SLOTS
    folder.mkdir(exist_ok=True, mode=0o700)
    with (folder / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def slots_of(box: Path) -> list[BoxSlot]:
    """Return the existing slots. A slot with a malformed record is skipped: `clean_up` removes it."""
    found = []
    for path in sorted((box / layout.SLOTS).glob(f"*/{layout.SLOT_RECORD}")):
        try:
            slot = read_json(BoxSlot, path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            continue
        if slot.name == path.parent.name and not slot.name.startswith("."):
            found.append(slot)
    return found


def list_slots(box: Path) -> SlotResponse:
    """Return the state of the machine and its slots."""
    rows = (
        {
            "name": slot.name,
            "label": slot.label,
            "rented_at": slot.rented_at,
            "units": len(slot.units),
            "is_armed": _is_locked(box / layout.SLOTS / slot.name / layout.LEASE_LOG),
        }
        for slot in slots_of(box)
    )
    is_ready = HeldBox.read(box) is not None
    return SlotResponse(is_ready=is_ready, drained=drain_reason(box), slots=tuple(rows))


def rent(box: Path, request: SlotRequest, environ: Mapping[str, str]) -> SlotResponse:
    """Create the slot, unless its name exists already, and arm its lease.

    Before, the machine is proven clean: no launcher cleaned up after a slot that its lease ended.
    """
    with slot_lock(box):
        machine, slots = HeldBox.read(box), slots_of(box)
        if machine is None:
            return SlotResponse(refused="the machine is not held yet")
        if not any(slot.name == request.name for slot in slots):
            if why := _refusal(box, machine, slots, request):
                return SlotResponse(is_ready=True, drained=drain_reason(box), refused=why)
            _build(box, machine, request, _free(machine, slots)[: request.units], environ)
        subprocess.run(
            ["bash", str(box / layout.SLOT_SCRIPT), request.name, f"exec bash {layout.LEASE_SCRIPT}"],
            cwd=box,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=30.0,
            start_new_session=True,
            check=True,
        )
    return list_slots(box)


def destroy(box: Path, name: str) -> SlotResponse:
    """End the processes of the slot, remove its folder, and prove that nothing of it is left.

    A machine that is not clean accepts no further slots. Raises OSError when the slot still exists.
    """
    with slot_lock(box):
        folder = box / layout.SLOTS / name
        slot = next((slot for slot in slots_of(box) if slot.name == name), None)
        if slot is not None:
            # Its lease ends it. The provider is `pool`: the machine's provider would end the machine.
            subprocess.run(
                ["bash", str(box / layout.ONSTART / layout.LEASE_SCRIPT), "end", slot.id, str(folder)],
                env={**os.environ, "VASTRUN_PROVIDER": "pool"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=120.0,
                start_new_session=True,
                check=False,
            )
            if (folder / layout.SLOT_RECORD).exists():
                raise OSError(f"{folder} could not be removed")
        faults = prove_clean(box)
    return SlotResponse(is_ready=True, drained=drain_reason(box), faults=faults)


def prove_clean(box: Path) -> tuple[str, ...]:
    """Clean up and return what is left of ended slots, which drains the machine."""
    machine = HeldBox.read(box)
    if machine is None:
        return ()
    slots = slots_of(box)
    busy = [gpu for slot in slots for gpu in slot.gpus]
    faults = clean_up(box, machine, [slot.name for slot in slots], busy_gpus=busy)
    if faults:
        drain(box, f"not clean: {'; '.join(faults)}")
    return faults


def drain(box: Path, why: str) -> str:
    """Mark the machine as accepting no further slots, and return the reason. The first one stays."""
    if not drain_reason(box):
        write_atomically(box / layout.DRAINED, f"{why}\n")
    return drain_reason(box)


def drain_reason(box: Path) -> str:
    """Return why the machine accepts no further slots; empty: it does."""
    return read_text(box / layout.DRAINED).strip()


def _refusal(box: Path, machine: HeldBox, slots: Sequence[BoxSlot], request: SlotRequest) -> str:
    """Return why a request is rejected; empty: it is accepted."""
    if why := drain_reason(box):
        return f"the machine accepts no further slots: {why}"
    free = len(_free(machine, slots))
    if free < request.units or request.gpus > request.units or (request.gpus and not machine.gpus):
        return f"{request.units} of {machine.units} parts requested, {free} free"
    if _lease_left_s(box) < 2 * _MARGIN_S:
        return "the machine's lease ends soon"
    return "; ".join(prove_clean(box))


def _free(machine: HeldBox, slots: Sequence[BoxSlot]) -> list[int]:
    used = {unit for slot in slots for unit in slot.units}
    return [unit for unit in range(machine.units) if unit not in used]


def _build(
    box: Path, machine: HeldBox, request: SlotRequest, units: Sequence[int], environ: Mapping[str, str]
) -> None:
    """Create a slot, under a hidden name first: after a crash `clean_up` removes the hidden folder."""
    folder, hidden = box / layout.SLOTS / request.name, box / layout.SLOTS / f".{request.name}"
    slot = BoxSlot(
        name=request.name,
        id=request.id,
        label=request.label,
        rented_at=time.time(),
        units=tuple(units),
        gpus=tuple(machine.gpus[unit] for unit in units)[: request.gpus] if machine.gpus else (),
        memory_mib=machine.memory_of(units, request.memory_gb),
        cores=machine.cores_of(units),
    )
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(mode=0o700)
    (hidden / layout.LEASE_SCRIPT).write_text(request.lease, encoding="utf-8")
    write_atomically(hidden / layout.SLOT_ENVIRONMENT, _environment(box, slot, request, environ))
    write_json(hidden / layout.SLOT_RECORD, vars(slot))
    hidden.rename(folder)


def _environment(box: Path, slot: BoxSlot, request: SlotRequest, environ: Mapping[str, str]) -> str:
    """Return shell lines with the variables of the slot's commands, in addition to the machine's."""
    variables = {
        **request.env,
        **_shorten_lease(request.env, _lease_left_s(box), environ),
        "VASTRUN_PROVIDER": "pool",
        "VASTRUN_BOX": f"{box}/{layout.SLOTS}/{slot.name}",
        "VASTRUN_INSTANCE": slot.id,
        "VASTRUN_SHARED_DATA": f"{box}/{layout.SHARED_DATA}",
        "VASTRUN_CORES": ",".join(map(str, slot.cores)),
        "CUDA_VISIBLE_DEVICES": ",".join(slot.gpus),
    }
    inherited = {"VASTRUN_PYTHON": "VASTRUN_PYTHON", "VASTRUN_INSTANCE": "VASTRUN_HELD"}
    variables |= {new: environ[old] for old, new in inherited.items() if old in environ}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _shorten_lease(
    env: Mapping[str, str], machine_left_s: float, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the changes that make a slot's lease end before the machine's; usually none."""
    life_s = float(env["LEASE_LIFE_S"])
    max_s = machine_left_s - _MARGIN_S
    if life_s <= max_s:
        return {}
    return {
        "LEASE_LIFE_S": f"{max_s:.0f}",
        "LEASE_LIFE_CAUSE": environ.get("LEASE_LIFE_CAUSE", "time_limit"),
        "LEASE_SHIP_S": f"{min(float(env['LEASE_SHIP_S']), max_s):.0f}",
        # It asks for a stop at most a fifth of its time before its end.
        "LEASE_GRACE_S": f"{min(float(env['LEASE_GRACE_S']), max_s / 5):.0f}",
    }


def _lease_left_s(box: Path) -> float:
    """Return the seconds until the end of the machine's lease; 0 if unknown."""
    lines = read_text(box / layout.LEASE_STATE).splitlines()
    facts = dict(line.split("=", 1) for line in lines if "=" in line)
    try:
        return max(0.0, float(facts["ends_at"]) - time.time())
    except (KeyError, ValueError):
        return 0.0


def _is_locked(path: Path) -> bool:
    """Tell whether a process holds the file's lock."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
