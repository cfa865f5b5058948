"""One maker for each provider: what the contract suite needs to try it out."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import parts
from tests.contract.held import LEASE, hold, small_job
from tests.contract.over_ssh import OverSsh
from tests.contract.ready import Ready
from tests.emulators.machines import Machine
from tests.emulators.slurm import shared
from tests.emulators.sshd import Sshd
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock, FakeProvider
from tests.launcher.providers.docker.boxes import BoxDaemon
from tests.parts import BASE_IMAGE
from vastrun.launcher.core import Offer, RentalOrder, Run
from vastrun.launcher.decisions.speed_history import SpeedHistory
from vastrun.launcher.image.lock import shipped_lock
from vastrun.launcher.ports import Clock, Provider
from vastrun.launcher.providers import PROVIDERS, ProviderContext, provider_class
from vastrun.launcher.providers.docker import DockerProvider
from vastrun.launcher.shipped import onstart_dir
from vastrun.launcher.ssh.keys import KeyRing


class RealClock:
    """The computer's own time."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, kw_only=True)
class Market:
    """A provider to try, and a second look at the same market through fresh eyes."""

    provider: Provider
    again: Callable[[], Provider]
    close: Callable[[], None] = lambda: None

    def order(self, label: str, *, env: Mapping[str, str] = LEASE) -> RentalOrder:
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
        return self.provider.search(small_job())[0]


def context(
    folder: Path, clock: Clock | None = None, *, runs: Callable[[], Sequence[Run]] = tuple, **environ: str
) -> ProviderContext:
    """What a launcher makes a provider from, with what it keeps in `folder`. `runs`: the open ones.

    Who waits by a clock looks at the same one, or would look again and again until the true one comes to it.
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
        provider=lambda name: provider_class(name).of(context(folder, clock, **environ)),
    )


def fake(folder: Path) -> Market:
    market = FakeProvider(FakeClock())
    return Market(provider=market, again=lambda: market)


def local(folder: Path) -> Market:
    def make() -> Provider:
        return provider_class("local").of(context(folder, **os.environ))

    return Market(provider=make(), again=make)


def ssh(folder: Path) -> Market:
    sshd = Sshd(folder / "sshd")
    sshd.__enter__()

    def make() -> Provider:
        keys = KeyRing(folder / "keys")
        return OverSsh(local(folder).provider, folder / "state" / "boxes", sshd, keys)

    return Market(provider=make(), again=make, close=sshd.stop)


def vast(folder: Path) -> Market:
    emulator = VastEmulator([Machine(id=number) for number in range(41000, 41004)], rate_limits=False)
    emulator.__enter__()
    clock = FakeClock(time.time())

    def make() -> Provider:
        account = {
            "VAST_API_KEY": emulator.account_key,
            "VAST_URL": emulator.url,
            "VAST_LOGIN": emulator.login,
        }
        return Ready(provider_class("vast").of(context(folder, clock, **account)))

    return Market(provider=make(), again=make, close=emulator.close)


def docker(folder: Path) -> Market:
    """Of a real daemon, where there is one."""
    if os.environ.get("CI"):
        parts.require("docker")
    return real_docker(folder) if parts.is_here("docker") else emulated_docker(folder)


def emulated_docker(folder: Path) -> Market:
    daemon = BoxDaemon()
    daemon.__enter__()

    def make() -> Provider:
        environ = {**os.environ, "DOCKER_HOST": daemon.url}
        provider = DockerProvider.of(context(folder, **environ))
        provider.login = daemon.login
        return Ready(provider, image=BASE_IMAGE)

    return Market(provider=make(), again=make, close=lambda: daemon.__exit__(None, None, None))


def real_docker(folder: Path) -> Market:
    def make() -> Provider:
        provider = provider_class("docker").of(context(folder, **os.environ))
        return Ready(provider, image=BASE_IMAGE)

    return Market(provider=make(), again=make)


def slurm(folder: Path) -> Market:
    """Jobs of a real cluster on this computer."""
    environ = {**os.environ, **shared().variables}

    def make() -> Provider:
        return Ready(provider_class("slurm").of(context(folder, **environ)))

    return Market(provider=make(), again=make)


def toy(folder: Path) -> Market:
    """The provider of tests/contract/toy, added by a line of the registry as any other is."""
    registry = {**PROVIDERS, "toy": "tests.contract.toy:ToyProvider"}

    def make() -> Provider:
        return provider_class("toy", registry).of(context(folder, **os.environ))

    return Market(provider=make(), again=make)


def pool(folder: Path) -> Market:
    """Slots of a machine of `local`, which a run holds."""
    machine = hold(local(folder).provider, folder)

    def make() -> Provider:
        return provider_class("pool").of(context(folder, runs=lambda: [machine.run], **os.environ))

    return Market(provider=make(), again=make, close=machine.end)


MAKERS: Mapping[str, Callable[[Path], Market]] = {
    "fake": fake,
    "local": local,
    "ssh": ssh,
    "docker": docker,
    "vast": vast,
    "slurm": slurm,
    "toy": toy,
    "pool": pool,
}
SYSTEMS = ("slurm",)
"""Those that are a part of the computer by the same name (tests/parts.py)."""
PRETENDED = ("fake",)
"""It sells whatever is asked for, and its boxes know the launcher's own commands only."""
