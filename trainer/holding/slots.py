"""Slots: a share of a held machine, made, listed and removed. One process at a time changes them.

slots/NAME/            the slot's box: docs/box.md, as if it were alone
slots/NAME/slot.json   what was asked for, and which parts of the machine it has
slots/NAME/slot.env    the environment of its commands: onstart/slot.sh
slots/.drained         why no more slots are taken
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.records import read_json, write_atomically, write_json
from vastrun.trainer.holding.cleanliness import clean_up
from vastrun.trainer.holding.leases import MARGIN_S, arm, end, left_s, shortened
from vastrun.trainer.holding.machine import HeldBox

_LOCK = ".lock"


@dataclass(frozen=True, kw_only=True)
class SlotOrder:
    """A slot that somebody asks for."""

    name: str
    id: str
    """What its processes carry as VASTRUN_INSTANCE."""
    label: str
    units: int
    gpus: int
    memory_gb: float = 0.0
    lease: str
    """Text of the lease script."""
    env: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class BoxSlot:
    """A slot that is there: `slot.json`."""

    name: str
    id: str
    label: str
    rented_at: float
    units: tuple[int, ...]
    """Which parts of the machine it has."""
    gpus: tuple[str, ...] = ()
    memory_mib: int = 0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SlotAnswer:
    """What a verb printed: one line of JSON."""

    ready: bool = False
    """The machine is held."""
    drained: str = ""
    """Why it takes no more slots; empty: it does."""
    refused: str = ""
    """Why the slot that was asked for was not made."""
    slots: tuple[dict[str, object], ...] = ()
    faults: tuple[str, ...] = field(default=())
    """What a slot has left on the machine."""


@contextmanager
def changing(box: Path) -> Iterator[None]:
    """Keep others from making or removing a slot meanwhile."""
    folder = box / layout.SLOTS
    folder.mkdir(exist_ok=True, mode=0o700)
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def slots_of(box: Path) -> list[BoxSlot]:
    """Return the slots that are there. One whose record cannot be read is none: it is left to `clean_up`."""
    found = []
    for path in sorted((box / layout.SLOTS).glob(f"*/{layout.SLOT_RECORD}")):
        try:
            slot = read_json(BoxSlot, path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            continue
        if slot.name == path.parent.name and not slot.name.startswith("."):
            found.append(slot)
    return found


def listed(box: Path) -> SlotAnswer:
    """Return how the machine stands."""
    return SlotAnswer(
        ready=HeldBox.read(box) is not None,
        drained=drained(box),
        slots=tuple(_row(box, slot) for slot in slots_of(box)),
    )


def rent(box: Path, order: SlotOrder, environ: Mapping[str, str]) -> SlotAnswer:
    """Make the slot and arm its lease. A name that is there already is not made again.

    The machine is proven clean before: a slot that a lease has ended had nobody to look after it.
    """
    with changing(box):
        machine, slots = HeldBox.read(box), slots_of(box)
        if machine is None:
            return SlotAnswer(refused="the machine is not held yet")
        if not any(slot.name == order.name for slot in slots):
            if why := _refusal(box, machine, slots, order):
                return SlotAnswer(ready=True, drained=drained(box), refused=why)
            _build(box, machine, order, _free(machine, slots)[: order.units], environ)
        arm(box, order.name)
    return listed(box)


def destroy(box: Path, name: str) -> SlotAnswer:
    """End all that the slot started, remove its folder, and prove that nothing of it is left.

    A machine that is not clean takes no more slots. Raises OSError when the slot is there nevertheless.
    """
    with changing(box):
        folder = box / layout.SLOTS / name
        slot = next((slot for slot in slots_of(box) if slot.name == name), None)
        if slot is not None:
            end(box, slot.id, folder)
        faults = prove_clean(box)
    return SlotAnswer(ready=True, drained=drained(box), faults=faults)


def prove_clean(box: Path) -> tuple[str, ...]:
    """Return what slots that are gone have left; what cannot be removed drains the machine."""
    machine = HeldBox.read(box)
    if machine is None:
        return ()
    slots = slots_of(box)
    busy = [gpu for slot in slots for gpu in slot.gpus]
    faults = clean_up(box, machine, [slot.name for slot in slots], busy_gpus=busy)
    if faults:
        drain(box, f"not clean: {'; '.join(faults)}")
    return faults


def drain(box: Path, why: str) -> None:
    """Have the machine take no more slots. The first reason stays."""
    if not drained(box):
        write_atomically(box / layout.DRAINED, f"{why}\n")


def drained(box: Path) -> str:
    """Return why the machine takes no more slots; empty: it does."""
    try:
        return (box / layout.DRAINED).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _refusal(box: Path, machine: HeldBox, slots: Sequence[BoxSlot], order: SlotOrder) -> str:
    """Why there is no slot for the order; empty: there is one."""
    if drained(box):
        return f"the machine takes no more slots: {drained(box)}"
    free = len(_free(machine, slots))
    if free < order.units or order.gpus > order.units or (order.gpus and not machine.gpus):
        return f"{order.units} of {machine.units} parts wanted, {free} free"
    if left_s(box) < 2 * MARGIN_S:
        return "the machine's own lease ends soon"
    return "; ".join(prove_clean(box))


def _free(machine: HeldBox, slots: Sequence[BoxSlot]) -> list[int]:
    taken = {unit for slot in slots for unit in slot.units}
    return [unit for unit in range(machine.units) if unit not in taken]


def _build(
    box: Path, machine: HeldBox, order: SlotOrder, units: Sequence[int], environ: Mapping[str, str]
) -> None:
    """Built under a hidden name: who dies here leaves no slot, only a folder that `clean_up` removes."""
    folder, hidden = box / layout.SLOTS / order.name, box / layout.SLOTS / f".{order.name}"
    slot = BoxSlot(
        name=order.name,
        id=order.id,
        label=order.label,
        rented_at=time.time(),
        units=tuple(units),
        gpus=tuple(machine.gpus[unit] for unit in units)[: order.gpus] if machine.gpus else (),
        memory_mib=machine.memory_of(units, order.memory_gb),
        cores=machine.cores_of(units),
    )
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(mode=0o700)
    (hidden / layout.LEASE_SCRIPT).write_text(order.lease, encoding="utf-8")
    write_atomically(hidden / layout.SLOT_ENVIRONMENT, _environment(box, slot, order, environ))
    write_json(hidden / layout.SLOT_RECORD, asdict(slot))
    hidden.rename(folder)


def _environment(box: Path, slot: BoxSlot, order: SlotOrder, environ: Mapping[str, str]) -> str:
    """Lines that a shell reads: what the slot's commands see besides the machine's own variables."""
    variables = {
        **order.env,
        **shortened(order.env, left_s(box), environ),
        "VASTRUN_PROVIDER": "pool",
        "VASTRUN_BOX": f"{box}/{layout.SLOTS}/{slot.name}",
        "VASTRUN_INSTANCE": slot.id,
        "VASTRUN_SHARED_DATA": f"{box}/{layout.SHARED_DATA}",
        "VASTRUN_CORES": ",".join(map(str, slot.cores)),
        "CUDA_VISIBLE_DEVICES": ",".join(slot.gpus),
    }
    kept = {"VASTRUN_PYTHON": "VASTRUN_PYTHON", "VASTRUN_INSTANCE": "VASTRUN_HELD"}
    variables |= {name: environ[ours] for ours, name in kept.items() if ours in environ}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def _row(box: Path, slot: BoxSlot) -> dict[str, object]:
    return {
        "name": slot.name,
        "label": slot.label,
        "rented_at": slot.rented_at,
        "units": len(slot.units),
        "armed": _is_locked(box / layout.SLOTS / slot.name / layout.LEASE_LOG),
    }


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
