"""HeldMarket: a market whose machines may be held; each of those has slots, with boxes of their own."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.fakebox import FakeBox, Loading, Training
from tests.fakes import FakeProvider
from tests.launcher.batch.virtual_time import VirtualTime
from tests.launcher.pool.slotted import SlottedMarket, SlottedRemote
from vastrun.contract import layout
from vastrun.launcher.core import CommandResult, Instance, Offer, RentalOrder
from vastrun.launcher.core.errors import GoneError
from vastrun.launcher.core.job import Hold, JobSpec
from vastrun.launcher.ports import Remote

_STOP_S = 90.0
HOLDING = Training(kind="hold", seconds=math.inf, steps=0)


class HeldMarket(FakeProvider):
    """`held` says of a label whether its run holds its machine. `sizes`: what a machine of so many costs."""

    def __init__(self, clock: VirtualTime, held: Callable[[str], Hold | None]) -> None:
        super().__init__(clock)
        self._held = held
        self.sizes: dict[int, float] = {}
        """Dollars an hour by the number of GPUs, besides those of the usual price, which has any number."""
        self.is_large = False
        """Nobody is offered the same host twice."""
        self.loads: list[Loading] = []
        """How long the next machines take to come up; others are up at once."""
        self._searches = 0
        self.slotted: dict[str, MachineSlots] = {}
        """By the ids of machines that are held, also of those that are gone."""

    def next_training(self, label: str) -> Training:
        """What the next run on a machine or a slot does."""
        return self.training

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        gpus = spec.resources.gpus
        if self.sizes and gpus not in self.sizes:
            return []
        price = self.sizes.get(gpus, self.usd_per_hour)
        self._searches += 1
        return [
            replace(
                offer,
                id=f"{offer.id}x{gpus}",
                host=f"{offer.host}-{self._searches}" if self.is_large else offer.host,
                usd_per_hour=price,
            )
            for offer in super().search(spec)
        ]

    def rent(self, order: RentalOrder) -> Instance:
        hold = self._held(order.label)
        self.loading = {order.offer.host: self.loads.pop(0)} if self.loads else {}
        self.training = HOLDING if hold is not None else self.next_training(order.label)
        instance = super().rent(order)
        if hold is not None:
            slots = self.slotted[instance.id] = MachineSlots(self, instance.id, hold.slots)
            self._boxes[instance.id] = HoldBox(slots, instance, order, self._boxes[instance.id])
        return instance

    def connect(self, instance: Instance) -> Remote:
        machine = super().connect(instance)
        slots = self.slotted.get(instance.id)
        return machine if slots is None else MachineRemote(slots, machine)

    def lose(self, instance_id: str) -> None:
        """The machine is lost, with all its slots."""
        self._end(instance_id, self.clock.now())

    def is_there(self, instance_id: str) -> bool:
        """Whether the machine is there."""
        self._settle()
        return instance_id in self._boxes

    def all_slots(self) -> int:
        """How many slots there are on machines that are there."""
        return sum(len(one.names) for id_, one in self.slotted.items() if self.is_there(id_))


class MachineSlots(SlottedMarket):
    """The slots of one machine."""

    def __init__(self, market: HeldMarket, machine_id: str, units: int) -> None:
        super().__init__(market.clock, units=units)
        self._market, self._machine_id = market, machine_id
        self.runs = 0
        """How many slots it made."""

    def expect_machine(self) -> None:
        if not self._market.is_there(self._machine_id):
            raise GoneError(f"no such machine: {self._machine_id}")
        super().expect_machine()

    def boxes(self) -> list[FakeBox]:
        """Those of its slots."""
        self.settle()
        return [self.slots.box(id_) for id_ in self.names.values()]

    def _make(self, name: str) -> str:
        self.slots.training = self._market.next_training(name)
        refused = super()._make(name)
        self.runs += not refused
        return refused


class HoldBox(FakeBox):
    """The box of a machine that is held: when it is to end, its slots may save and be collected."""

    def __init__(self, slots: MachineSlots, instance: Instance, order: RentalOrder, like: FakeBox) -> None:
        super().__init__(instance, order, HOLDING, slots.clock, loading=like.loading)
        self._slots = slots

    def _stop(self, at: float) -> None:
        self._slots.drained = "the machine is to end"
        left = self._slots.boxes()
        if not left or at > (self.stop_at or at) + _STOP_S:
            super()._stop(at)
        for box in left:
            box.files.setdefault(layout.STOP, self.files[layout.STOP])


class MachineRemote(SlottedRemote):
    """A shell on a machine that is held: what is no slot's goes to the machine's own box."""

    def __init__(self, slots: MachineSlots, machine: Remote) -> None:
        super().__init__(slots)
        self._machine = machine

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        if command.startswith(("bash onstart/module.sh holding", "exec bash")):
            return super().run(command, timeout_s=timeout_s)
        return self._machine.run(command, timeout_s=timeout_s)

    def put(self, local_path: str, path: str) -> None:
        if path.startswith(f"{layout.SLOTS}/"):
            super().put(local_path, path)
        else:
            self._machine.put(local_path, path)

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        if path.startswith((f"{layout.SLOTS}/", layout.SLOT_ORDERS)):
            super().write(path, content, mode=mode)
        else:
            self._machine.write(path, content, mode=mode)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        if path.startswith(f"{layout.SLOTS}/"):
            return super().read(path, offset=offset, limit=limit)
        return self._machine.read(path, offset=offset, limit=limit)
