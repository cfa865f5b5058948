"""Faults: trouble injected at one call of one verb, before or after it took effect."""

import collections
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.fakes import FakeProvider
from vastrun.launcher.core import Cause, Instance, Phase, errors
from vastrun.launcher.ports import Abilities

Moment = Literal["before", "after"]
MOMENTS: tuple[Moment, ...] = ("before", "after")

PROVIDER_TROUBLES = ("error", "uncertain", "unreachable", "denied", "busy", "vanish", "bug", "killed")
REMOTE_TROUBLES = ("error", "unreachable", "gone", "vanish", "bug", "killed")
DISK_TROUBLES = ("no space", "bug", "killed")
"""What may go wrong in a call of a provider, of a machine, or of this computer's disk."""

KILL_IN: dict[Phase, tuple[str, Moment]] = {
    Phase.PLAN: ("output_store.check", "after"),
    Phase.RENT: ("provider.rent", "after"),
    Phase.BOOT: ("remote.read", "before"),
    Phase.SHIP: ("remote.put", "after"),
    Phase.TRAIN: ("output_store.download_log", "after"),
    Phase.COLLECT: ("output_store.collect", "before"),
    Phase.DESTROY: ("provider.destroy", "before"),
}
"""In each phase, a call at which a launcher is killed, and whether it has had its effect by then."""


class Killed(BaseException):
    """The launcher was killed with SIGKILL here."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`trouble` at the `nth` call of `verb`, before or after its effect, for `times` calls in a row."""

    verb: str
    nth: int
    moment: Moment
    trouble: str
    times: int = 1

    def __str__(self) -> str:
        return f"{self.trouble} {self.moment} {self.verb} #{self.nth}" + (
            f" x{self.times}" * (self.times > 1)
        )


def launch_killed(
    world: Any, verb: str, moment: Moment, *, nth: int = 1, besides: Sequence[Fault] = ()
) -> None:
    """A launcher begins the run, and is killed at that call; the other faults may strike before."""
    world.expect(Fault(verb=verb, nth=nth, moment=moment, trouble="killed"), *besides)
    with pytest.raises(Killed):
        world.launch()


Strikes = Callable[[Fault, Path], bool]
"""Drives a run with that fault in that folder, checks what it left, and tells whether the fault struck."""


def check_first_call(strikes: Strikes, verb: str, moment: Moment, trouble: str, folder: Path) -> None:
    """Check a run whose first call of the verb has that trouble."""
    fault = Fault(verb=verb, nth=1, moment=moment, trouble=trouble)
    assert strikes(fault, folder / "1"), "the fault of this row never struck: the row tests nothing"


def check_later_calls(
    strikes: Strikes, verb: str, moment: Moment, trouble: str, folder: Path, calls: int
) -> None:
    """Check a run for each later call of the verb, of so many, until a whole run makes no more of them."""
    for nth in range(2, calls + 1):
        if not strikes(Fault(verb=verb, nth=nth, moment=moment, trouble=trouble), folder / str(nth)):
            return


def _outbid() -> errors.ProviderError:
    error = errors.ProviderError("outbid at $0.500/h")
    error.cause = Cause.PREEMPTED
    return error


TROUBLES: Mapping[str, Callable[[], BaseException]] = {
    "error": lambda: errors.ProviderError("HTTP 500"),
    "uncertain": lambda: errors.UncertainError("the answer was cut off"),
    "unreachable": lambda: errors.UnreachableError("connection timed out"),
    "gone": lambda: errors.GoneError("HTTP 404"),
    "denied": lambda: errors.AuthError("HTTP 401"),
    "busy": lambda: errors.BusyError("HTTP 429"),
    "outbid": _outbid,
    "vanish": lambda: errors.GoneError("HTTP 404"),
    "bug": lambda: RuntimeError("a fault of our own"),
    "exit": lambda: SystemExit(0),
    "no space": lambda: errors.StorageError("no space left on device"),
    "killed": Killed,
}


PAUSES: Mapping[str, float] = {"sleeps": 300.0, "sleeps long": 8 * 3600.0}
"""Troubles in which the launcher's computer sleeps for so many seconds, and goes on as if nothing were."""


LIES: Mapping[str, Any] = {"blank": (), "ignored": None}
"""Troubles that raise nothing: the verb is not carried out and this is its answer."""


@dataclass
class Plan:
    """Which faults are to come, and how often each verb was called so far."""

    market: FakeProvider
    faults: tuple[Fault, ...] = ()
    calls: collections.Counter[str] = field(default_factory=collections.Counter)
    struck: list[Fault] = field(default_factory=list)
    acts: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What else happens at a call, by the name of its trouble."""

    def call(self, verb: str, act: Callable[[], Any]) -> Any:
        """Runs `act`, with whatever trouble is due."""
        self.calls[verb] += 1
        nth = self.calls[verb]
        lie = self._due(verb, nth, "before")
        if lie is not None and lie.trouble in LIES:
            self.struck.append(lie)
            return LIES[lie.trouble]
        self._strike(verb, nth, "before")
        result = act()
        self._strike(verb, nth, "after")
        return result

    def _strike(self, verb: str, nth: int, moment: Moment) -> None:
        fault = self._due(verb, nth, moment)
        if fault is None:
            return
        self.struck.append(fault)
        if fault.trouble in PAUSES:
            self.market.clock.sleep(PAUSES[fault.trouble])
            return
        if fault.trouble in self.acts:
            self.acts[fault.trouble]()
            return
        if fault.trouble == "vanish":
            self.market.vanish()
        raise TROUBLES[fault.trouble]()

    def _due(self, verb: str, nth: int, moment: Moment) -> Fault | None:
        for fault in self.faults:
            in_time = fault.nth <= nth < fault.nth + fault.times
            if in_time and (fault.verb, fault.moment) == (verb, moment):
                return fault
        return None


class Faulty:
    """Anything behind a port, with the plan's faults at each call of its verbs."""

    def __init__(self, real: Any, noun: str, plan: Plan) -> None:
        self._real, self._noun, self._plan = real, noun, plan

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        if not callable(value):
            return value

        def verb(*args: Any, **kwargs: Any) -> Any:
            return self._plan.call(f"{self._noun}.{name}", lambda: value(*args, **kwargs))

        return verb


class FaultyProvider(Faulty):
    """A provider whose remotes are faulty too."""

    @property
    def abilities(self) -> Abilities:
        real: Abilities = self._real.abilities
        networks: Any = real.networks and Faulty(real.networks, "networks", self._plan)
        return replace(
            real,
            charged=real.charged and self.charged,
            market=real.market and self.market_report,
            networks=networks,
            ends_later=real.ends_later and Faulty(real.ends_later, "ends_later", self._plan),
        )

    def connect(self, instance: Instance) -> Any:
        remote = self._plan.call("provider.connect", lambda: self._real.connect(instance))
        return Faulty(remote, "remote", self._plan)
