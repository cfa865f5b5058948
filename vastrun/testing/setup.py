"""ProviderSetup: a provider under test, with the orders that the contract suite gives it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from vastrun.launcher.core import Instance, Offer, RentalOrder, Run
from vastrun.launcher.core.job import JobSpec, Limits, Resources, Success
from vastrun.launcher.decisions.history import SpeedHistory
from vastrun.launcher.image.lock import shipped_lock
from vastrun.launcher.package_files import onstart_dir
from vastrun.launcher.ports import Clock, Provider
from vastrun.launcher.providers import ProviderContext, provider_class

LEASE: Mapping[str, str] = {
    "LEASE_SHIP_S": "600",
    "LEASE_LIFE_S": "3600",
    "LEASE_LIFE_CAUSE": "time_limit",
    "LEASE_GRACE_S": "60",
    "LEASE_COLLECT_S": "600",
}
"""Environment of an order: a lease of one hour."""
TIMEOUT_S = 240.0
"""Twenty times as long as anything takes on an idle computer, so that a busy one fails no test."""

_T = TypeVar("_T")


class RealClock:
    """The computer's own time."""

    def now(self) -> float:
        """Return epoch seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        time.sleep(seconds)


@dataclass(kw_only=True)
class ProviderSetup:
    """A provider under test. The suite has up to two of its machines at once.

    ProviderSetup(provider=make(), again=make, close=server.stop)
    """

    provider: Provider
    again: Callable[[], Provider]
    """Makes another one of the same machines, as a second launcher does."""
    close: Callable[[], None] = lambda: None
    """Ends what the setup started, when all tests are done."""
    _machine: Instance | None = field(default=None, init=False)

    def order(self, label: str, *, env: Mapping[str, str] = LEASE) -> RentalOrder:
        """Return an order of the best offer."""
        offer = self.offer()
        return RentalOrder(
            offer=offer,
            label=label,
            image=offer.image,
            disk_gb=8.0,
            onstart=(onstart_dir() / "lease.sh").read_text(encoding="utf-8"),
            env=env,
            max_usd=0.0,
        )

    def offer(self) -> Offer:
        """Return the best offer for a small job."""
        return self.provider.search(small_job())[0]

    def shared_machine(self) -> Instance:
        """Return a machine that several tests use; the first one rents it."""
        if self._machine is None:
            self._machine = self.provider.rent(self.order("vastrun-calm-heron-3f1a"))
        return self._machine

    def clear(self) -> None:
        """Destroy every machine."""
        self._machine = None
        for instance in self.provider.instances():
            self.provider.destroy(instance.id)


def small_job() -> JobSpec:
    """Return a job that every computer can run: without GPUs, 8 GB of disk."""
    return JobSpec(
        name="demo",
        resources=Resources(gpus=0, disk_gb=8.0),
        limits=Limits(hours=1.0, usd=3.0),
        command=("true",),
        success=Success(exit_code=0),
    )


def provider_context(
    folder: Path, clock: Clock | None = None, *, runs: Callable[[], Sequence[Run]] = tuple, **environ: str
) -> ProviderContext:
    """Return what a launcher makes a provider from, with its state in `folder` and that environment.

    `clock`: None is the computer's own. `runs`: the open ones.
    """
    return ProviderContext(
        environ=environ,
        state=folder / "state",
        clock=clock or RealClock(),
        uptime=clock.now if clock else time.monotonic,
        python=sys.executable,
        image_lock=shipped_lock,
        speeds=lambda _provider, _spec: SpeedHistory(),
        runs=runs,
        provider=lambda name: provider_class(name).of(provider_context(folder, clock, runs=runs, **environ)),
    )


def eventually(look: Callable[[], _T], *, within_s: float = TIMEOUT_S, what: str = "it") -> _T:
    """Return the first true value of `look`. Raises AssertionError when there is none in time."""
    deadline = time.monotonic() + within_s
    while not (value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {within_s:.0f} s; last seen: {value!r}")
        time.sleep(0.02)
    return value
