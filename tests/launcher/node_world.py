"""Simulated runs with several nodes; their boxes hear of each other, their threads take turns."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fake_outputs import FakeOutputStore, FakePacker
from tests.fakebox import FakeBox
from tests.fakes import FakeProvider, FakeRemote, FakeScreen, FakeUserRequests
from tests.jobs import train_job
from tests.launcher.batch.virtual_time import Pool, VirtualTime
from tests.launcher.faults import Fault, Faulty, FaultyProvider, Killed, Plan
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome
from vastrun.launcher import core
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.errors import NoOfferError, ProviderError, UnreachableError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.flow.services import Services
from vastrun.launcher.gate.rendezvous import ADDRESSES, find_address
from vastrun.launcher.ledger.sql import SqlLedger
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.ports import Abilities, Remote
from vastrun.launcher.transcript import recorded

RUN_ID = "calm-heron-3f1a"
NODES = 2
_SILENT_S = 5.0
"""A supervisor believes for so long that a node which vanished may speak again."""


class NodeMarket(FakeProvider):
    """Its boxes train together: what one of them ends with, the others do."""

    max_nodes = 4

    def __init__(self, clock: VirtualTime) -> None:
        super().__init__(clock)
        self.stock = 100
        """So many machines there are."""
        self.too_early = 0
        """How often a training was begun while another node had nothing shipped."""
        self.silent: set[int] = set()
        """Nodes that answer nobody, while they are listed."""
        self.interfaces: dict[int, str] = {}
        """What the box of a node prints of its addresses, where that is not the truth."""
        self.order: list[str] = []
        """The labels in the order in which they were rented."""
        self.while_shipping: Callable[[int], None] = lambda _: None
        self._missed: dict[str, float] = {}

    def rent(self, order: core.RentalOrder) -> core.Instance:
        if self.rented >= self.stock:
            raise NoOfferError("somebody was faster")
        self.order.append(order.label)
        return super().rent(order)

    def connect(self, instance: core.Instance) -> Remote:
        self.box(instance.id)
        return _NodeRemote(self, instance.id)

    def box(self, instance_id: str) -> FakeBox:
        found = super().box(instance_id)
        if found.node in self.silent:
            raise UnreachableError("the job does not answer")
        return found

    def box_of(self, node: int) -> FakeBox:
        """The box of that node."""
        return next(box for box in self._boxes.values() if box.node == node)

    @property
    def boxes(self) -> Sequence[FakeBox]:
        """Those that there are."""
        return list(self._boxes.values())

    def lose(self, node: int) -> None:
        """Its machine vanishes."""
        self._end(self.box_of(node).instance.id, self.clock.now())

    def fail(self, node: int, reason: str = "error") -> None:
        """The first rank of that node fails; the supervisors tell each other."""
        box = self.box_of(node)
        rank = 2 * node
        box.end_as(box.outcome_of(reason, f"rank {rank} failed", rank))

    def _settle(self) -> None:
        super()._settle()
        for box in self._boxes.values():
            others = [
                other
                for other in self._boxes.values()
                if other is not box and other.node_labels == box.node_labels and other.node not in self.silent
            ]
            if box.node not in self.silent:
                self._hear(box, others)

    def _hear(self, box: FakeBox, others: Sequence[FakeBox]) -> None:
        if box.started_at is None:
            return
        if any(layout.SHIPPED not in other.files for other in others):
            self.too_early += 1
        if len(others) < len(box.node_labels) - 1:
            since = self._missed.setdefault(box.instance.id, self.clock.now())
            if self.clock.now() - since >= _SILENT_S:
                box.end_as(box.outcome_of("communication", "a node can no longer be reached"))
        for other in others:
            if layout.STOP in other.files:
                box.files.setdefault(layout.STOP, other.files[layout.STOP])
            outcome = Outcome.from_json(other.files[layout.OUTCOME].decode()) if other.ended_at else None
            if outcome is not None and outcome.reason not in ("finished", "stopped"):
                box.end_as(outcome)


class DeafMarket(NodeMarket):
    """Its boxes hear nothing of each other: they go on without one that left."""

    def _hear(self, box: FakeBox, others: Sequence[FakeBox]) -> None:
        """What the others end with changes nothing here."""


class NetworkedMarket(NodeMarket):
    """Its machines reach each other only on a network that is made for their run, in one of two places."""

    def __init__(self, clock: VirtualTime) -> None:
        super().__init__(clock)
        self.networks: dict[str, str] = {}
        """By the label of node 0, where each was made."""
        self.left_with = 0
        """How many machines there were, at most, when a network was removed."""

    @property
    def abilities(self) -> Abilities:
        return replace(super().abilities, networks=self)

    def search(self, spec: JobSpec) -> Sequence[core.Offer]:
        return [
            replace(offer, network="a" if number % 2 else "b")
            for number, offer in enumerate(super().search(spec))
        ]

    def rent(self, order: core.RentalOrder) -> core.Instance:
        made_on = self.networks.setdefault(order.nodes[0], order.offer.network)
        if order.offer.network != made_on:
            raise ProviderError("the run's network is elsewhere")
        return replace(super().rent(order), rendezvous="")

    def rendezvous(self, label: str, remote: Remote) -> str:
        """Where a box is met."""
        if label not in self.networks:
            raise ProviderError("there is no such network")
        return f"{find_address('10.5.0.0/24', remote.run(ADDRESSES, timeout_s=1.0).stdout)}:29400"

    def run_networks(self) -> Sequence[core.RunNetwork]:
        """Those that there are."""
        return [core.RunNetwork(name=f"net of {label}", label=label) for label in self.networks]

    def remove_network(self, label: str) -> None:
        """It is gone, and so would be what is on it."""
        if self.networks.pop(label, None) is not None:
            self.left_with = max(self.left_with, self.rented)


class _NodeRemote(FakeRemote):
    """A shell on one of its boxes."""

    def __init__(self, market: NodeMarket, instance_id: str) -> None:
        super().__init__(market, instance_id)
        self._market = market

    def run(self, command: str, *, timeout_s: float) -> core.CommandResult:
        box = self._box()
        if command != ADDRESSES:
            return super().run(command, timeout_s=timeout_s)
        honest = f"172.17.0.2 10.5.0.{box.instance.id}\n"
        printed = self._market.interfaces.get(box.node, honest)
        return core.CommandResult(exit_code=0, stdout=printed, stderr="")

    def put(self, local_path: str, path: str) -> None:
        self._market.while_shipping(self._box().node)
        super().put(local_path, path)


class Life:
    """Of one launcher: once it was killed, nothing that it does has an effect."""

    def __init__(self) -> None:
        self.is_over = False


class _Mortal:
    def __init__(self, part: Any, life: Life) -> None:
        self._part, self._life = part, life

    def __getattr__(self, name: str) -> Any:
        if self._life.is_over:
            raise Killed
        value = getattr(self._part, name)
        if not callable(value):
            return value

        def verb(*args: Any, **kwargs: Any) -> Any:
            if self._life.is_over:
                raise Killed
            try:
                result = value(*args, **kwargs)
            except Killed:
                self._life.is_over = True
                raise
            return _Mortal(result, self._life) if name == "connect" else result

        return verb


class NodeWorld:
    """Start launchers with `launch` and `resume`; see what is left in `market` and `ledger`."""

    def __init__(
        self, folder: Path, *, nodes: int = NODES, market: type[NodeMarket] = NodeMarket, **job: Any
    ) -> None:
        self.spec: JobSpec = train_job(nodes=nodes, **job)
        self.time = VirtualTime()
        self.market = market(self.time)
        self.screen = FakeScreen()
        self.user_requests = FakeUserRequests(self.time)
        self.stores: dict[str, FakeOutputStore] = {}
        self.dead: set[str] = set()
        self.plan = Plan(self.market)
        self.budgets: tuple[Budget, ...] = ()
        self.ledger = self.opened()
        self.happens_in: dict[core.Phase, Callable[[int], None]] = {}
        """What comes to pass while a node ships or collects, by the phase; it is told the node."""
        self.market.while_shipping = lambda node: self._happen(core.Phase.SHIP, node)
        self._folder = folder
        self._numbers, self._ids = itertools.count(1), itertools.count(1)

    def opened(self) -> SqlLedger:
        """The ledger, as it is at first."""
        return SqliteLedger(Path(":memory:"), now=self.time.now, alive=lambda who: who not in self.dead)

    def ledger_on(self, computer: str) -> SqlLedger:
        """The ledger, as that computer of the team has it."""
        del computer
        return self.ledger

    def expect(self, *faults: Fault) -> None:
        """These faults are to come."""
        self.plan.faults = faults

    def at(self, after_s: float, happen: Any) -> None:
        """It comes to pass then."""
        self.time.happens.append((self.time.now() + after_s, happen))

    def launch(self) -> core.Run:
        """A launcher begins the run and drives it, with its retries."""
        return self._drive(lambda attempts: attempts.drive_to_end(self.begun(attempts)))

    def resume(self, run_id: str = RUN_ID, *, computer: str = "desk") -> core.Run:
        """Another launcher drives it on, on a computer of the team."""
        ledger = self.ledger_on(computer)
        return self._drive(lambda attempts: attempts.resume(ledger.get(run_id), None), computer)

    def _happen(self, phase: core.Phase, node: int) -> None:
        self.happens_in.get(phase, lambda _: None)(node)

    def begun(self, attempts: Attempts) -> core.Run:
        return attempts.start(self.spec, provider="fake", run_id=RUN_ID, out_dir=str(self._folder / "out"))

    def attempts(self, who: str, life: Life, computer: str = "desk") -> Attempts:
        def services_for(_: str, __: core.Origin) -> Services:
            parts: dict[str, Any] = {
                "provider": _Mortal(FaultyProvider(self.market, "provider", self.plan), life),
                "ledger": _Mortal(Faulty(self.ledger_on(computer), "ledger", self.plan), life),
                "output_store": _Mortal(
                    Faulty(_Stores(self.stores, self._happen), "output_store", self.plan), life
                ),
                "packer": _Mortal(Faulty(FakePacker(self._folder), "packer", self.plan), life),
            }
            return Services(
                clock=self.time,
                screen=self.screen,
                user_requests=self.user_requests,
                who=who,
                computer=computer,
                budgets=lambda _: self.budgets,
                **parts,
            )

        return Attempts(
            services_for=services_for,
            new_id=lambda: f"run-{next(self._ids)}",
            workers=self._workers,
            recorded=recorded,
        )

    def rows(self, run_id: str = RUN_ID) -> list[core.Run]:
        """The rows of all nodes."""
        return [self.ledger.get(run_id), *self.ledger.runs(leader=run_id)]

    def every_row(self) -> Sequence[core.Run]:
        return self.ledger.runs(members=True)

    @property
    def usd(self) -> float:
        """What all of them cost."""
        return sum(core.bills.cost_usd(run, self.time.now()) for run in self.every_row())

    @property
    def told(self) -> str:
        events = self.screen.events
        return "\n".join(f"{event.at - 1.8e9:8.1f} {event.phase}: {event.text}" for event in events)

    def _drive(self, work: Any, computer: str = "desk") -> core.Run:
        who, life = f"{computer}:{next(self._numbers)}:0", Life()
        try:
            run: core.Run = work(self.attempts(who, life, computer))
        except BaseException:
            self.dead.add(who)
            raise
        return run

    @contextmanager
    def _workers(self) -> Iterator[Pool]:
        """As a pool of threads: it waits for all, whatever happened."""
        pool = Pool(self.time)
        try:
            yield pool
        finally:
            while not pool.is_idle:
                self.time.sleep(1.0)


class _Stores:
    """A FakeOutputStore for each row: each has a folder of its own."""

    def __init__(self, stores: dict[str, FakeOutputStore], happen: Callable[[core.Phase, int], None]) -> None:
        self._stores, self._happen = stores, happen

    def __getattr__(self, name: str) -> Any:
        def verb(run: core.Run, *args: Any, **kwargs: Any) -> Any:
            if name == "collect":
                self._happen(core.Phase.COLLECT, run.node)
            return getattr(self._stores.setdefault(run.id, FakeOutputStore()), name)(run, *args, **kwargs)

        return verb
