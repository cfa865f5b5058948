"""The fleet: every instance of the account, from create to gone, brought up to date and billed."""

import itertools
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from tests.emulators.account import Account
from tests.emulators.answers import ApiError, no_such_ask, no_such_instance
from tests.emulators.behaviour import Behaviour
from tests.emulators.billing import Billing, Meter, Rates
from tests.emulators.box import Graphics
from tests.emulators.clock import Clock
from tests.emulators.containers import Containers
from tests.emulators.event_queue import EventQueue
from tests.emulators.faults import FAULTS, HARDWARE, Faults, Place
from tests.emulators.instance import Instance, Pace
from tests.emulators.life import Life
from tests.emulators.market import Ask, Market
from tests.emulators.offer_rows import storage_usd_per_hour
from tests.emulators.rental import Rental

BY_ID, IN_LIST = "by_id", "in_list"
"""Where the API shows instances."""
_GHOST_S = 2.0
_FIRST_ID = 50_000_000
"""Ids differ between emulators, as processes of several share this computer."""


@dataclass(frozen=True, kw_only=True)
class Ghost:
    """An instance that is gone and shown."""

    begins: float
    ends: float
    instance: Instance
    where: str = ""
    """Only there; empty: everywhere."""

    def is_there(self, now: float, where: str) -> bool:
        """Whether it is shown there now."""
        return self.begins <= now < self.ends and self.where in ("", where)


class Fleet:
    """What we rent. Every verb acts now; call `settle` first."""

    def __init__(
        self,
        *,
        clock: Clock,
        market: Market,
        account: Account,
        billing: Billing,
        faults: Faults,
        containers: Containers,
        behaviour: Behaviour,
        pace: Pace,
    ) -> None:
        self._behaviour = behaviour
        self._clock = clock
        self._market = market
        self._account = account
        self._billing = billing
        self._faults = faults
        self._containers = containers
        self._ids = itertools.count(_FIRST_ID + secrets.randbelow(10**7))
        self._instances: dict[int, Instance] = {}
        self._ghosts: list[Ghost] = []
        self._events = EventQueue(clock.now())
        self._life = Life(
            self._instances,
            event_queue=self._events,
            market=market,
            account=account,
            faults=faults,
            containers=containers,
            behaviour=behaviour,
            pace=pace,
        )

    def __iter__(self) -> Iterator[Instance]:
        """Everything that is rented, oldest first."""
        return iter(list(self._instances.values()))

    def __len__(self) -> int:
        return len(self._instances)

    def seen(self, where: str) -> list[Instance]:
        """What the API shows, by its id or in the list: what is rented, and now and then what is gone."""
        now = self._clock.now()
        return [*self, *(one.instance for one in self._ghosts if one.is_there(now, where))]

    def get(self, instance_id: int) -> Instance:
        """The instance. Raises ApiError (404)."""
        if instance_id not in self._instances:
            raise no_such_instance(instance_id)
        return self._instances[instance_id]

    def rented_machines(self) -> frozenset[int]:
        """Machines on which we have an instance."""
        return frozenset(instance.machine.id for instance in self)

    def create(self, ask: Ask, rental: Rental, *, stopped: bool = False) -> Instance:
        """A new instance; a stopped one where the GPU cannot be had. Raises ApiError (410)."""
        lost = self._market.free(ask.machine.id, bid_usd=rental.bid_usd) < ask.gpus
        if lost and rental.cancel_unavail:
            raise no_such_ask(410, 3907, ask.id)
        instance = self._make(ask, rental)
        self._instances[instance.id] = instance
        self._containers.connect(instance)
        ends_in = instance.end_date - self._events.moment
        self._events.after(instance, ends_in, self._life.end_contract, lasting=True)
        if stopped or lost:
            instance.state(None, "stopped", "stopped")
        else:
            self._life.boot(instance)
        return instance

    def create_later(self, ask: Ask, rental: Rental, delay_s: float) -> None:
        """A new instance after so long; none where the GPU cannot be had by then."""

        def create() -> None:
            with suppress(ApiError):
                self.create(ask, rental)

        self._events.later(delay_s, create)

    def start_later(self, instance: Instance, delay_s: float) -> None:
        """Its bid is granted after so long."""
        self._events.after(instance, delay_s, self._life.boot)

    def attach_key(self, instance: Instance, public_key: str) -> None:
        """The key may log in from now on."""
        instance.ssh_keys[max(instance.ssh_keys, default=0) + 1] = public_key
        instance.box.authorize(list(instance.ssh_keys.values()))

    def winning_bid(self, instance: Instance) -> float:
        """The lowest bid that has its GPUs now."""
        return self._market.winning_bid(instance.machine.id, instance.gpus, instance_id=instance.id)

    def change_bid(self, instance: Instance, bid_usd: float | None) -> None:
        """The price from now on, None for one that wins."""
        if bid_usd is None:
            bid_usd = self.winning_bid(instance)
        instance.bid_usd = bid_usd
        instance.meter.rates.gpu_usd_per_hour = instance.gpu_usd_per_hour
        if instance.cur != "running":
            return
        if bid_usd < instance.machine.min_bid_usd * instance.gpus - 1e-9:
            self._life.lose_bid(instance)
        else:
            self._life.hold(instance)

    def count_download(self, instance: Instance, size: int, delay_s: float) -> None:
        """It has fetched so many bytes, which are counted after so long."""

        def count(there: Instance) -> None:
            there.downloaded += size

        self._events.after(instance, delay_s, count, lasting=True)

    def destroy(self, instance: Instance) -> None:
        """It is gone, unless a fault keeps it."""
        if self._faults.take("destroy_ignored", instance.place):
            return
        delayed = self._faults.take("destroy_delayed", instance.place)
        if delayed:
            self._events.after(instance, delayed.seconds or 5.0, self._remove, lasting=True)
            return
        ghost = self._faults.take("row_reappears", instance.place)
        if ghost:
            self._haunt(instance, ghost.seconds or 1.0, _GHOST_S)
        for where in (BY_ID, IN_LIST):
            self._haunt(instance, 0.0, self._behaviour.number(f"gone.{where}"), where)
        if self._behaviour.word("gone.again") == "yes":
            self._haunt(instance, 2 * _GHOST_S, 4 * _GHOST_S)
        self._remove(instance)

    def _haunt(self, instance: Instance, after_s: float, seconds: float, where: str = "") -> None:
        """It is shown for so long, though it is gone; `where`: only there."""
        begins = self._clock.now() + after_s
        self._ghosts.append(Ghost(begins=begins, ends=begins + seconds, instance=instance, where=where))

    def cut(self, seconds: float) -> None:
        """No box can be reached for so long."""
        for instance in self:
            self._life.cut(instance, seconds)

    def settle(self) -> None:
        """Everything that was due until now has happened, and is billed."""
        now = max(self._clock.now(), self._events.moment)
        self._look_around()
        while (moment := min(self._events.next_at, self._broke_at())) <= now:
            self._bill(moment)
            if self._events.next_at <= moment:
                self._events.happen()
            if self._account.credit <= 1e-9:
                for instance in self:
                    if instance.cur == "running":
                        self._life.halt(instance)
            self._look_around()
        self._bill(now)
        self._containers.sweep()

    def close(self) -> None:
        """Nothing is rented, and no process is left."""
        for instance in self:
            self._remove(instance)
        self._containers.close()

    def _make(self, ask: Ask, rental: Rental) -> Instance:
        instance_id = next(self._ids)
        place = Place(instance_id=instance_id, machine_id=ask.machine.id)
        flaws = {name for name, (where, _) in FAULTS.items() if where == HARDWARE}
        flaws = {name for name in flaws if self._faults.take(name, place)}
        instance = Instance(
            id=instance_id,
            machine=ask.machine,
            gpus=ask.gpus,
            rental=rental,
            api_key=self._account.add_key(f"C.{instance_id}", instance_id=instance_id).key,
            created_at=self._events.moment,
            end_date=self._market.end_date(ask.machine),
            label=rental.label,
            bid_usd=rental.bid_usd,
            flaws=flaws,
        )
        instance.price_factor *= self._price_factor(instance)
        state = self._behaviour.word("create.state")
        instance.actual = None if state == "null" else state
        instance.box = self._containers.furnish(instance_id, _graphics(instance, self._behaviour))
        instance.meter = self._billing.open(_meter(instance))
        return instance

    def _price_factor(self, instance: Instance) -> float:
        """What makes its whole price so many times that of the offer."""
        gpu_usd = instance.gpu_usd_per_hour
        disk_usd = storage_usd_per_hour(instance.machine, instance.rental.disk_gb)
        return ((gpu_usd + disk_usd) * self._behaviour.number("create.price") - disk_usd) / gpu_usd

    def _bill(self, moment: float) -> None:
        """Everybody has paid until that moment, which is now."""
        self._events.moment = moment = max(moment, self._events.moment)
        for instance in self:
            self._billing.read(instance.meter, moment, *instance.traffic)

    def _broke_at(self) -> float:
        """When the credit is used up, as things stand; never, if nothing runs."""
        burn = sum(instance.meter.usd_per_second for instance in self)
        if burn <= 0 or not any(instance.cur == "running" for instance in self):
            return float("inf")
        return self._events.moment + max(self._account.credit, 0.0) / burn

    def _look_around(self) -> None:
        """Containers that ended by themselves, bids that win again, faults of what runs."""
        for instance in self:
            if instance.runs and instance.box.exit_code is not None:
                self._life.halt(instance)
            elif instance.losing and self._life.can_run(instance):
                self._life.restart(instance)
            elif instance.runs:
                self._life.strike(instance)

    def _remove(self, instance: Instance) -> None:
        if self._instances.pop(instance.id, None) is None:
            return
        instance.generation += 1
        self._billing.end(instance.meter, self._events.moment, *instance.traffic)
        instance.running_since = None
        self._market.release(instance.id)
        self._account.revoke(instance.api_key)
        self._containers.remove(instance)


def _graphics(instance: Instance, behaviour: Behaviour) -> Graphics:
    shown = round(len(instance.gpu_names) * behaviour.number("box.gpus"))
    return Graphics(
        names=instance.gpu_names[:shown],
        memory_mb=round(instance.machine.gpu_ram_mb * behaviour.number("box.gpu_memory")),
        driver=instance.driver,
        used_mb=instance.gpu_used_mb,
        cuda=instance.cuda + behaviour.number("box.cuda"),
    )


def _meter(instance: Instance) -> Meter:
    machine = instance.machine
    return Meter(
        instance_id=instance.id,
        label=instance.label,
        gpu_name=machine.gpu_name,
        read_at=instance.created_at,
        rates=Rates(
            gpu_usd_per_hour=instance.gpu_usd_per_hour,
            disk_usd_per_hour=storage_usd_per_hour(machine, instance.rental.disk_gb),
            down_usd_per_gb=machine.inet_down_usd,
            up_usd_per_gb=machine.inet_up_usd,
        ),
    )
