"""One maker for each provider: what the contract suite needs to try it out."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests import parts
from tests.contract.held import hold
from tests.contract.over_ssh import OverSsh
from tests.contract.ready import Ready
from tests.emulators.machines import Machine
from tests.emulators.slurm import shared
from tests.emulators.sshd import Sshd
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock, FakeProvider
from tests.launcher.providers.docker.boxes import BoxDaemon
from tests.parts import BASE_IMAGE
from vastrun.launcher.ports import Provider
from vastrun.launcher.providers import PROVIDERS, provider_class
from vastrun.launcher.providers.docker import DockerProvider
from vastrun.launcher.ssh.keys import KeyRing
from vastrun.testing.setup import ProviderSetup, provider_context


def fake(folder: Path) -> ProviderSetup:
    market = FakeProvider(FakeClock())
    return ProviderSetup(provider=market, again=lambda: market)


def local(folder: Path) -> ProviderSetup:
    def make() -> Provider:
        return provider_class("local").of(provider_context(folder, **os.environ))

    return ProviderSetup(provider=make(), again=make)


def ssh(folder: Path) -> ProviderSetup:
    sshd = Sshd(folder / "sshd")
    sshd.__enter__()

    def make() -> Provider:
        keys = KeyRing(folder / "keys")
        return OverSsh(local(folder).provider, folder / "state" / "boxes", sshd, keys)

    return ProviderSetup(provider=make(), again=make, close=sshd.stop)


def vast(folder: Path) -> ProviderSetup:
    emulator = VastEmulator([Machine(id=number) for number in range(41000, 41004)], rate_limits=False)
    emulator.__enter__()
    clock = FakeClock(time.time())

    def make() -> Provider:
        account = {
            "VAST_API_KEY": emulator.account_key,
            "VAST_URL": emulator.url,
            "VAST_LOGIN": emulator.login,
        }
        return Ready(provider_class("vast").of(provider_context(folder, clock, **account)))

    return ProviderSetup(provider=make(), again=make, close=emulator.close)


def docker(folder: Path) -> ProviderSetup:
    """Of a real daemon, where there is one."""
    if os.environ.get("CI"):
        parts.require("docker")
    return real_docker(folder) if parts.is_here("docker") else emulated_docker(folder)


def emulated_docker(folder: Path) -> ProviderSetup:
    daemon = BoxDaemon()
    daemon.__enter__()

    def make() -> Provider:
        environ = {**os.environ, "DOCKER_HOST": daemon.url}
        provider = DockerProvider.of(provider_context(folder, **environ))
        provider.login = daemon.login
        return Ready(provider, image=BASE_IMAGE)

    return ProviderSetup(provider=make(), again=make, close=lambda: daemon.__exit__(None, None, None))


def real_docker(folder: Path) -> ProviderSetup:
    def make() -> Provider:
        provider = provider_class("docker").of(provider_context(folder, **os.environ))
        return Ready(provider, image=BASE_IMAGE)

    return ProviderSetup(provider=make(), again=make)


def slurm(folder: Path) -> ProviderSetup:
    """Jobs of a real cluster on this computer."""
    environ = {**os.environ, **shared().variables}

    def make() -> Provider:
        return Ready(provider_class("slurm").of(provider_context(folder, **environ)))

    return ProviderSetup(provider=make(), again=make)


def toy(folder: Path) -> ProviderSetup:
    """The provider of tests/contract/toy, added by a line of the registry as any other is."""
    registry = {**PROVIDERS, "toy": "tests.contract.toy:ToyProvider"}

    def make() -> Provider:
        return provider_class("toy", registry).of(provider_context(folder, **os.environ))

    return ProviderSetup(provider=make(), again=make)


def pool(folder: Path) -> ProviderSetup:
    """Slots of a machine of `local`, which a run holds."""
    machine = hold(local(folder).provider, folder)

    def make() -> Provider:
        return provider_class("pool").of(provider_context(folder, runs=lambda: [machine.run], **os.environ))

    return ProviderSetup(provider=make(), again=make, close=machine.end)


MAKERS: Mapping[str, Callable[[Path], ProviderSetup]] = {
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
