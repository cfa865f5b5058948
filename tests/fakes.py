"""Fakes behind the ports: a clock, a market that outlives launchers, boxes that train by the clock."""

import hashlib
import itertools
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tests.fakebox import FakeBox, Loading, Training
from tests.offers import rtx_4090
from vastrun.contract import layout
from vastrun.launcher import core
from vastrun.launcher.core import errors
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.market import ScheduledEnd
from vastrun.launcher.decisions import offer_check
from vastrun.launcher.decisions.estimates import Constraint, MarketReport, Quote, Relaxation, Term
from vastrun.launcher.ports import Abilities, Clock, Remote

PRICE = 3.6
"""Dollars an hour: 0.001 dollars a second."""


class FakeClock:
    """Time that passes only when somebody waits for it."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


TERMS = (Term(name="GPU", usd=7.2, text="2.0 h"), Term(name="risk", usd=0.1, text="reliability 99%"))
"""What finishing a job on the fake market is expected to cost."""


class FakeProvider:
    """A market that outlives the launchers: hand the same one to a second launcher."""

    name = "fake"
    free = False
    max_nodes = 1
    shared = True
    list_lag_s = 60.0

    def __init__(
        self, clock: FakeClock, *, training: Training | None = None, usd_per_hour: float = PRICE
    ) -> None:
        self.clock = clock
        self.training = training or Training()
        self.usd_per_hour = usd_per_hour
        self.remote_type = FakeRemote
        self.loading_usd = 0.0
        """What each of its machines is expected to cost before it trains."""
        self.taken: set[str] = set()
        self.cut_off = False
        """No box answers while this is set; the market itself does."""
        self.stranded_from = math.inf
        """From then on no box answers, and none can end its machine."""
        self.unreadable: tuple[str, ...] = ()
        """Values of each machine that make no sense."""
        self.mute_from = math.inf
        """From then on it shows no machine, neither in its list nor by its id; it ends them as before."""
        self.loading: dict[str, Loading] = {}
        """How long the machines of a host take to come up; the others are up at once."""
        self.impostors: set[str] = set()
        """Hosts whose machines have other GPUs than was offered, as only the box shows."""
        self.offline: set[str] = set()
        """Hosts whose machines reach nothing on the internet."""
        self.overpriced: set[str] = set()
        """Hosts that cost twice as much as was offered."""
        self.bill_usd = 0.0
        self.extras = core.ExtraRates()
        self.down_gb = 0.0
        """What each machine has fetched, as it is listed."""
        self.own_row_down_gb: float | None = None
        """What a machine has fetched by its own row, where the list is older."""
        self.charges: dict[str, float] = {}
        """What it says that it charged, by label."""
        self.charge_error: errors.VastrunError | None = None
        """What it answers to who asks what it charged."""
        self.bills = True
        """It says what it charged."""
        self.image: str | None = None
        """What runs there when the job names none."""
        self.machine_of: dict[str, str] = {}
        """The last machine with a label, also once it has ended."""
        self.most_at_once = self.rentals = 0
        self.unlisted: set[str] = set()
        """Machines that its list does not show; each is there, and is charged."""
        self.scheduled: dict[str, float] = {}
        """When its own servers end a machine, by its id: at a full hour."""
        self.ended_by_schedule: list[str] = []
        self.forgotten: set[str] = set()
        """Runs whose keys were thrown away."""
        self._boxes: dict[str, FakeBox] = {}
        self._ids = itertools.count(1)

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            charged=self.charged if self.bills else None,
            keys=self,
            market=self.market_report,
            ends_later=self,
        )

    def search(self, spec: JobSpec) -> Sequence[core.Offer]:
        return [
            rtx_4090(
                spec.resources.gpus,
                id=f"offer-{n}",
                host=f"host-{n}",
                usd_per_hour=self.usd_per_hour,
                expected_usd=sum(term.usd for term in TERMS) if self.usd_per_hour else 0.0,
                loading_usd=self.loading_usd,
                description="2 x RTX 4090",
                image=spec.image or self.image,
            )
            for n in range(1, 8)
        ]

    def market_report(self, spec: JobSpec) -> MarketReport:
        """Its offers, and three that are too small."""
        quotes = tuple(Quote(offer=offer, terms=TERMS) for offer in self.search(spec))
        small = Constraint(name="gpu_memory_gb", text="20 GB", removed=3)
        return MarketReport(
            offers=len(quotes) + 3,
            unreadable=0,
            constraints=(small,),
            relaxations=(Relaxation(name=small.name, left=len(quotes) + 3),),
            quotes=quotes,
        )

    def rent(self, order: core.RentalOrder) -> core.Instance:
        if order.offer.id in self.taken:
            raise errors.NoOfferError("taken")
        self._settle()
        instance = core.Instance(
            id=str(next(self._ids)),
            label=order.label,
            state="running",
            usd_per_hour=order.offer.usd_per_hour * (2 if order.offer.host in self.overpriced else 1),
            rented_at=self.clock.now(),
            extras=self.extras,
            down_gb=self.down_gb,
            host=order.offer.host,
        )
        if order.nodes:
            instance = replace(instance, rendezvous=f"10.0.0.{instance.id}:29400")
        loading = self.loading.get(order.offer.host, Loading())
        self.machine_of[order.label] = instance.id
        self._boxes[instance.id] = FakeBox(instance, order, self.training, self.clock, loading=loading)
        self.rentals += 1
        self.most_at_once = max(self.most_at_once, len(self._boxes))
        return self._boxes[instance.id].listed() if loading.queued else instance

    def instances(self) -> Sequence[core.Instance]:
        self._settle()
        self._must_not_be_mute()
        listed = [box.listed() for id, box in self._boxes.items() if id not in self.unlisted]
        return [replace(machine, unreadable=self.unreadable) for machine in listed]

    def machine(self, instance_id: str) -> core.Instance | None:
        self._settle()
        self._must_not_be_mute()
        box = self._boxes.get(instance_id)
        if box is None or self.own_row_down_gb is None:
            return box.listed() if box else None
        return replace(box.listed(), down_gb=self.own_row_down_gb)

    def _must_not_be_mute(self) -> None:
        if self.clock.now() >= self.mute_from:
            raise errors.UnreachableError("its rows cannot be read", cause=core.Cause.PROVIDER)

    def connect(self, instance: core.Instance) -> Remote:
        self.box(instance.id)
        return self.remote_type(self, instance.id)

    def destroy(self, instance_id: str) -> None:
        self._settle()
        self._end(instance_id, self.clock.now())

    def forget(self, run_id: str) -> None:
        self.forgotten.add(run_id)

    def charged(self, since: float, until: float) -> Sequence[core.Charge]:
        if self.charge_error is not None:
            raise self.charge_error
        return [
            core.Charge(instance_id=self.machine_of.get(label, ""), label=label, usd=usd)
            for label, usd in self.charges.items()
        ]

    def schedule_end(self, instance_id: str, after_s: float) -> None:
        self.scheduled[instance_id] = math.ceil((self.clock.now() + after_s + 900) / 3600) * 3600

    def cancel_end(self, instance_id: str) -> None:
        self.scheduled.pop(instance_id, None)

    def scheduled_ends(self) -> Sequence[ScheduledEnd]:
        return [ScheduledEnd(id=f"job-{one}", instance_id=one, at=at) for one, at in self.scheduled.items()]

    def box(self, instance_id: str) -> FakeBox:
        """The living box, up to date. Raises as a Remote does."""
        self._settle()
        if instance_id not in self._boxes:
            raise errors.GoneError(f"no such machine: {instance_id}")
        box = self._boxes[instance_id]
        if self.cut_off or self._is_stranded or not box.is_up:
            raise errors.UnreachableError("connection timed out")
        return box

    def shown_by(self, box: FakeBox) -> str:
        """What the box's own tools print."""
        gpu = "Tesla T4" if box.instance.host in self.impostors else "NVIDIA GeForce RTX 4090"
        return "disk_kb 104857600\nmemory_kb 131886272\n" + f"gpu 24564, {gpu}\n" * box.gpus + "cuda 12.8\n"

    def downloaded_by(self, box: FakeBox) -> str:
        """What the box prints of a download at 80 Mbit/s."""
        size = 0 if box.instance.host in self.offline else 16_000_000
        return f"down {size} 100.00 101.60\n"

    def reprice(self, factor: float) -> None:
        """Every machine costs so many times as much from now on."""
        for box in self._boxes.values():
            self.bill_usd += self._owed(box, self.clock.now())
            box.charged_until = self.clock.now()
            box.instance = replace(box.instance, usd_per_hour=box.instance.usd_per_hour * factor)

    @staticmethod
    def _owed(box: FakeBox, at: float) -> float:
        since = box.instance.rented_at if box.charged_until is None else box.charged_until
        return (at - since) / 3600 * box.instance.usd_per_hour

    def rename(self, instance_id: str, label: str) -> None:
        """The user gives the machine another label."""
        box = self._boxes[instance_id]
        box.instance = replace(box.instance, label=label)

    @property
    def rented(self) -> int:
        """How many machines there are, listed or not."""
        self._settle()
        return len(self._boxes)

    def vanish(self) -> None:
        """Every machine is lost at once, as when its host dies."""
        for instance_id in list(self._boxes):
            self._end(instance_id, self.clock.now())

    def _settle(self) -> None:
        """Leases that ran out have ended their machines."""
        for instance_id, box in list(self._boxes.items()):
            if not self.cut_off:
                box.advance()
            ended = box.lease_end()
            if ended is not None and not self._is_stranded:
                self._end(instance_id, ended)
        for instance_id, at in self.scheduled.items():
            if at <= self.clock.now() and instance_id in self._boxes:
                self.ended_by_schedule.append(instance_id)
                self._end(instance_id, at)

    @property
    def _is_stranded(self) -> bool:
        return self.clock.now() >= self.stranded_from

    def _end(self, instance_id: str, at: float) -> None:
        box = self._boxes.pop(instance_id, None)
        if box is not None:
            self.bill_usd += self._owed(box, at)


class BoxHost(Protocol):
    """Where fake boxes are."""

    @property
    def clock(self) -> Clock: ...

    def box(self, instance_id: str, /) -> FakeBox: ...

    def shown_by(self, box: FakeBox, /) -> str: ...

    def downloaded_by(self, box: FakeBox, /) -> str: ...


class FakeRemote:
    """A shell on a fake box that knows the commands a launcher sends."""

    def __init__(self, provider: BoxHost, instance_id: str) -> None:
        self._provider = provider
        self._id = instance_id

    def run(self, command: str, *, timeout_s: float) -> core.CommandResult:
        box = self._box()
        if command == "bash onstart/status.sh":
            return core.CommandResult(exit_code=0, stdout=box.status() + "\n", stderr="")
        if command == "bash onstart/run.sh start":
            box.start()
            return core.CommandResult(exit_code=0, stdout="", stderr="")
        if command.startswith("bash onstart/run.sh stop "):
            box.files.setdefault(layout.STOP, shlex.split(command)[-1].encode())
            return core.CommandResult(exit_code=0, stdout="", stderr="")
        if command.endswith(f"bash {layout.REARM}"):
            if not box.training.obeys:
                return core.CommandResult(exit_code=1, stdout="", stderr="no")
            box.rearm(float(dict(word.split("=", 1) for word in shlex.split(command)[1:-2])["LEASE_AGE_S"]))
            return core.CommandResult(exit_code=0, stdout="", stderr="")
        if f" bash {layout.DEADLINE} " in command:
            box.ends_at = self._provider.clock.now() + float(shlex.split(command)[-2])
            return core.CommandResult(exit_code=0, stdout="", stderr="")
        if command == offer_check.COMMAND:
            return core.CommandResult(exit_code=0, stdout=self._provider.shown_by(box), stderr="")
        if 'echo "down ' in command:
            return core.CommandResult(exit_code=0, stdout=self._provider.downloaded_by(box), stderr="")
        return self._on_files(command, box)

    def _on_files(self, command: str, box: FakeBox) -> core.CommandResult:
        if layout.OUTBOX in command:  # a fake box holds nothing: its checkpoints stay for long enough
            return core.CommandResult(exit_code=1, stdout="", stderr="no links here")
        if command.endswith("transfer.receive"):
            text = box.receipts.pop(0) if len(box.receipts) > 1 else box.receipts[0]
            return core.CommandResult(exit_code=0, stdout=text, stderr="")
        unpack = re.match(r"echo '(\w+)  (\S+)' \| sha256sum", command)
        assert unpack is not None, f"a fake box does not know {command!r}"
        if hashlib.sha256(box.files.get(unpack[2], b"")).hexdigest() != unpack[1]:
            return core.CommandResult(exit_code=1, stdout="", stderr="checksum")
        box.files[layout.SHIPPED] = b""
        return core.CommandResult(exit_code=0, stdout="", stderr="")

    def put(self, local_path: str, path: str) -> None:
        self._box().files[path] = Path(local_path).read_bytes()

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        box = self._box()
        box.files[path] = content
        box.modes[path] = mode

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        return self._box().files.get(path, b"")[offset : offset + limit]

    def close(self) -> None:
        pass

    def _box(self) -> FakeBox:
        return self._provider.box(self._id)


@dataclass
class FakeScreen:
    """Remembers what was shown."""

    events: list[core.Event] = field(default_factory=list)
    logs: str = ""
    shown: list[tuple[core.Phase, core.Progress]] = field(default_factory=list)
    """At each moment."""
    dollars: list[tuple[float, float]] = field(default_factory=list)
    """Spent by then, and the price an hour."""

    def report(self, event: core.Event) -> None:
        self.events.append(event)

    def log(self, text: str) -> None:
        self.logs += text

    def progress(self, run: core.Run, progress: core.Progress, *, usd: float) -> None:
        self.shown.append((run.phase, progress))
        self.dollars.append((usd, run.usd_per_hour))


@dataclass
class FakeUserRequests:
    """Requests at given moments: {epoch seconds: request}."""

    clock: FakeClock
    at: Mapping[float, core.UserRequest] = field(default_factory=dict)

    def current(self) -> core.UserRequest:
        due = [request for moment, request in sorted(self.at.items()) if moment <= self.clock.now()]
        return due[-1] if due else core.UserRequest.NONE
