"""SlottedMarket: one fake machine that is held; its slots are the machines of another fake market."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace

from tests.fakebox import Training
from tests.fakes import PRICE, FakeClock, FakeProvider, FakeRemote
from tests.offers import rental_order, rtx_4090
from tests.runs import a_run
from vastrun.contract import layout
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import CommandResult, Instance, Phase, Run
from vastrun.launcher.core.errors import GoneError, UnreachableError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.pool.held_machines import hold_spec
from vastrun.launcher.pool.machine import NO_SLOT
from vastrun.launcher.ports import Abilities, Remote

UNITS = 4
_SLOT_PATH = re.compile(rf"{layout.SLOTS}/([^./][^/]*)/(.+)")
Listed = Callable[[dict[str, object]], object]


class SlottedMarket:
    """The provider of the machine. `slots` has the boxes; `says` changes what the machine prints."""

    name = "fake"
    free = False
    max_nodes = 1
    shared = False
    list_lag_s = 0.0
    abilities = Abilities()

    def __init__(self, clock: FakeClock, *, training: Training | None = None, units: int = UNITS) -> None:
        self.clock = clock
        self.units = units
        self.slots = FakeProvider(clock, training=training)
        self.names: dict[str, str] = {}
        """By the names of slots, the ids that their boxes have in `slots`."""
        self.parts: dict[str, int] = {}
        """How many of the machine's parts each slot has."""
        self.is_gone = self.is_silent = False
        self.says: Listed = lambda _answer: None
        self.printed: str | None = None
        """What the machine prints instead."""
        self.drained = ""
        self._orders: dict[str, bytes] = {}

    def held(self, job: JobSpec) -> Run:
        """The run that holds the machine."""
        spec = hold_spec(job, slots=2, hours=10.0, usd=None, idle_s=600.0)
        now = self.clock.now()
        offer = rtx_4090(UNITS, id="4711", host="host-1", disk_gb=200.0, usd_per_hour=2 * PRICE)
        return a_run(
            id="held-owl-0a0a",
            spec_json=dump_job(spec),
            provider=self.name,
            phase=Phase.TRAIN,
            created_at=now,
            offer=offer,
            instance_id="1",
            host=offer.host,
            usd_per_hour=offer.usd_per_hour,
            rented_at=now,
        )

    def machine(self, instance_id: str) -> Instance | None:
        if self.is_gone:
            return None
        return Instance(
            id="1", label="vastrun-held-owl-0a0a", state="running", usd_per_hour=1.0, rented_at=1.0
        )

    def connect(self, instance: Instance) -> Remote:
        self.expect_machine()
        return SlottedRemote(self)

    def vanish(self) -> None:
        """The machine is lost, with all its slots."""
        self.is_gone = True
        self.slots.vanish()

    def expect_machine(self) -> None:
        if self.is_gone:
            raise GoneError("no such machine: 1")
        if self.is_silent:
            raise UnreachableError("it does not answer")

    def box(self, name: str) -> FakeRemote | None:
        """A shell in the slot; None where there is none."""
        self.settle()
        return FakeRemote(self.slots, self.names[name]) if name in self.names else None

    def settle(self) -> None:
        """Slots that their leases have ended are gone."""
        there = {instance.id for instance in self.slots.instances()}
        self.names = {name: box for name, box in self.names.items() if box in there}

    def answer(self, verb: str, name: str | None) -> str:
        """What `python -m vastrun.onstart.holding` prints there."""
        refused = ""
        if verb == "rent" and name is not None and name not in self.names:
            refused = self.drained or self._make(name)
        if verb == "destroy" and name in self.names:
            self.slots.destroy(self.names.pop(name or ""))
        self.settle()
        rows = [
            {
                "name": slot,
                "label": found.label,
                "rented_at": found.rented_at,
                "units": self.parts[slot],
                "is_armed": True,
            }
            for slot, box in self.names.items()
            if (found := self.slots.machine(box)) is not None
        ]
        answer: dict[str, object] = {
            "is_ready": True,
            "drained": self.drained,
            "refused": refused,
            "slots": rows,
            "faults": [],
        }
        self.says(answer)
        return json.dumps(answer) if self.printed is None else self.printed

    def _make(self, name: str) -> str:
        order = json.loads(self._orders.pop(name))
        if sum(self.parts[slot] for slot in self.names) + order["units"] > self.units:
            return "no part is free"
        self.parts[name] = order["units"]
        offer = replace(self.slots.search(JobSpec(name="any"))[0], usd_per_hour=PRICE, gpus=order["gpus"])
        made = rental_order(offer, label=order["label"], onstart=order["lease"], env=order["env"])
        self.names[name] = self.slots.rent(made).id
        return ""

    def take_order(self, path: str, content: bytes) -> None:
        self._orders[path.rpartition("/")[2].removesuffix(".json")] = content


class SlottedRemote:
    """A shell on the machine: commands and paths of its slots, and its own."""

    def __init__(self, market: SlottedMarket) -> None:
        self._market = market

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        self._market.expect_machine()
        words = shlex.split(command)
        if words[1:3] == ["onstart/module.sh", "holding"]:
            printed = self._market.answer(words[3], words[4] if len(words) > 4 else None)
            return CommandResult(exit_code=0, stdout=printed, stderr="")
        assert words[:3] == ["exec", "bash", layout.SLOT_SCRIPT], command
        box = self._market.box(words[3])
        if box is None:
            return CommandResult(exit_code=NO_SLOT, stdout="", stderr="there is no slot")
        if words[4] == "true":
            return CommandResult(exit_code=0, stdout="", stderr="")
        return box.run(words[4], timeout_s=timeout_s)

    def put(self, local_path: str, path: str) -> None:
        box, inner = self._in_slot(path)
        if box is not None:
            box.put(local_path, inner)

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        self._market.expect_machine()
        box, inner = self._in_slot(path)
        if box is not None:
            box.write(inner, content, mode=mode)
        elif path.startswith(layout.SLOT_ORDERS):
            self._market.take_order(path, content)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        self._market.expect_machine()
        box, inner = self._in_slot(path)
        return b"" if box is None else box.read(inner, offset=offset, limit=limit)

    def close(self) -> None:
        pass

    def _in_slot(self, path: str) -> tuple[FakeRemote | None, str]:
        found = _SLOT_PATH.fullmatch(path)
        return (None, path) if found is None else (self._market.box(found[1]), found[2])
