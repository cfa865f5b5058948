"""The life of an instance: it boots, runs, stops, starts again, and what befalls it on the way."""

from dataclasses import replace
from functools import partial

from tests.emulators.account import Account
from tests.emulators.behaviour import Behaviour
from tests.emulators.containers import Containers
from tests.emulators.dead_ends import DEAD_ENDS
from tests.emulators.event_queue import EventQueue
from tests.emulators.faults import BOOT, RUNNING, Faults
from tests.emulators.gateway import Mood
from tests.emulators.instance import Instance, Pace
from tests.emulators.market import Holding, Market

_SLOW_LAYERS = 30
_PULL = (
    "a3ed95caeb02: Pulling fs layer\n",
    "6f28985ad184: Pulling fs layer\n",
    "6f28985ad184: Download complete\n",
    "a3ed95caeb02: Download complete\n",
    "6f28985ad184: Pull complete\n",
    "a3ed95caeb02: Pull complete\n",
)
_SLOW = ("slow_loading", "registry_limit")
_TOO_MANY = "Error response from daemon: toomanyrequests: You have reached your pull rate limit.\n"
_LASTING = frozenset({"price_rises", "price_falls", "relabelled"})
"""Faults that come even when the instance was started or stopped meanwhile."""


class Life:
    """Moves single instances along, at the moment of the event queue."""

    def __init__(
        self,
        instances: dict[int, Instance],
        *,
        event_queue: EventQueue,
        market: Market,
        account: Account,
        faults: Faults,
        containers: Containers,
        behaviour: Behaviour,
        pace: Pace,
    ) -> None:
        self._instances = instances
        self._events = event_queue
        self._market = market
        self._account = account
        self._faults = faults
        self._containers = containers
        self._behaviour = behaviour
        told_s = behaviour.number("loading.seconds") if behaviour.is_told("loading.seconds") else None
        self._pace = pace if told_s is None else replace(pace, loading_s=max(0.0, told_s - pace.created_s))
        self._fault_actions = {
            "outbid": self._outbid,
            "host_offline": self._go_offline,
            "no_heartbeat": lambda it: self._show(it, "unknown"),
            "frozen": lambda it: self._show(it, "frozen"),
            "container_exits": self.halt,
            "credit_zero": lambda _: self._bankrupt(),
            "price_rises": lambda it: self._reprice(it, 2.0),
            "price_falls": lambda it: self._reprice(it, 0.5),
            "relabelled": self._relabel,
            "contract_end": self.end_contract,
        }

    def boot(self, instance: Instance, *, delay_s: float = 0.0) -> None:
        """It has its GPUs, and loads after so long."""
        instance.generation += 1
        self.hold(instance)
        instance.state(instance.actual, "running", "running")
        self._events.after(instance, delay_s + self._pace.created_s, self._load)

    def restart(self, instance: Instance) -> None:
        """It reads `exited` for a while, then loads."""
        instance.losing = False
        instance.actual = "exited"  # its message stays that of the last start
        self.boot(instance, delay_s=self._pace.restart_s)

    def halt(self, instance: Instance) -> None:
        """The container is down, only the disk is billed."""
        instance.generation += 1
        self._containers.end(instance)
        self._market.release(instance.id)
        instance.meter.gpu_on = False
        instance.running_since = None
        instance.state("exited", "stopped", "stopped")

    def lose_bid(self, instance: Instance) -> None:
        """Somebody pays more for its GPUs."""
        self.halt(instance)
        instance.losing = True

    def end_contract(self, instance: Instance) -> None:
        """The host takes the machine back: it can never start again."""
        self.halt(instance)
        instance.ended = True

    def hold(self, instance: Instance) -> None:
        """The GPUs are the instance's; who bid less loses them."""
        self._market.release(-instance.id)
        holding = Holding(machine_id=instance.machine.id, gpus=instance.gpus, bid_usd=instance.bid_usd)
        for loser in self._market.hold(instance.id, holding):
            if loser in self._instances:
                self.lose_bid(self._instances[loser])

    def can_run(self, instance: Instance) -> bool:
        """Whether GPUs and money are there."""
        free = self._market.free(instance.machine.id, bid_usd=instance.bid_usd)
        lowest = instance.machine.min_bid_usd * instance.gpus
        lowest = max(lowest, (self._market.bid_of(-instance.id) or 0.0) * 1.001)
        pays = instance.bid_usd is None or instance.bid_usd >= lowest - 1e-9
        return pays and not instance.ended and self._account.credit > 0 and free >= instance.gpus

    def strike(self, instance: Instance) -> None:
        """A fault of running instances befalls it, if one waits. On-demand instances cannot be outbid."""
        spared = "outbid" if instance.bid_usd is None else ""
        fault = self._faults.first(RUNNING, instance.place, but=spared)
        if fault is None:
            return
        if fault.name == "network_cut":
            self.cut(instance, fault.seconds or 10.0)
        else:
            since = instance.running_since or self._events.moment
            delay_s = since + (fault.seconds or 0.0) - self._events.moment
            self._events.after(
                instance, delay_s, self._fault_actions[fault.name], lasting=fault.name in _LASTING
            )

    def cut(self, instance: Instance, seconds: float) -> None:
        """The box is silent for so long."""
        self._containers.set_mood(instance, Mood.SILENT)
        self._events.after(instance, seconds, self._connect, lasting=True)

    def _connect(self, instance: Instance) -> None:
        self._containers.set_mood(instance, Mood.OPEN)

    def _load(self, instance: Instance) -> None:
        fault = self._faults.first(BOOT, instance.place)
        instance.actual = "loading"
        instance.status_msg = _PULL[0]
        if fault and fault.name in DEAD_ENDS:
            end = DEAD_ENDS[fault.name]
            instance.state(end.actual, end.cur, end.intended)
            instance.status_msg = end.text and end.text.format(id=instance.id, image=instance.rental.image)
            instance.daemon_log = end.daemon_log and end.daemon_log.format(image=instance.rental.image)
            instance.log_is_late = end.log_is_late
            if end.cur == "stopped":
                self._market.release(instance.id)
                instance.meter.gpu_on = False
            return
        slower = (fault.seconds or 600.0) if fault and fault.name in _SLOW else 0.0
        if fault and fault.name == "pull_slow":
            slower = fault.seconds or 3000.0
            for layer in range(_SLOW_LAYERS):
                text = f"{layer:012x}: Pull complete\n"
                self._events.after(instance, slower * layer / _SLOW_LAYERS, partial(_say, text))
        quirk = fault.name if fault else None
        limited_s = slower if quirk == "registry_limit" else 0.0
        if limited_s:
            instance.status_msg = _TOO_MANY
        for number, text in enumerate(_PULL):
            delay_s = limited_s + self._pace.loading_s * number / len(_PULL)
            self._events.after(instance, delay_s, partial(_say, text))
        self._events.after(instance, self._pace.loading_s + slower, lambda it: self._run(it, quirk))

    def _run(self, instance: Instance, quirk: str | None) -> None:
        instance.state("running", "running", "running")
        image = instance.rental.image.replace("/", "_").replace(":", "_")
        instance.status_msg = f"success, running {image}/{instance.rental.runtype.split()[-1]}\n"
        instance.running_since = self._events.moment
        instance.meter.gpu_on = True
        self._containers.start(instance, quirk)
        late = self._faults.take("ssh_late", instance.place)
        if late:
            self._containers.set_mood(instance, Mood.REFUSING)
            self._events.after(instance, late.seconds or 30.0, self._connect)

    def _outbid(self, instance: Instance) -> None:
        rival_usd = (instance.bid_usd or 0.0) * 1.1
        self.lose_bid(instance)
        rival = Holding(machine_id=instance.machine.id, gpus=instance.gpus, bid_usd=rival_usd)
        self._market.hold(-instance.id, rival)

    def _go_offline(self, instance: Instance) -> None:
        self._containers.end(instance)
        instance.generation += 1
        instance.meter.gpu_on = False
        instance.running_since = None
        instance.actual = "offline"

    def _show(self, instance: Instance, actual: str) -> None:
        instance.actual = actual

    def _reprice(self, instance: Instance, factor: float) -> None:
        instance.price_factor *= factor
        instance.meter.rates.gpu_usd_per_hour = instance.gpu_usd_per_hour

    def _relabel(self, instance: Instance) -> None:
        instance.label = "my own words"

    def _bankrupt(self) -> None:
        self._account.credit = 0.0


def _say(text: str, instance: Instance) -> None:
    instance.status_msg = text
