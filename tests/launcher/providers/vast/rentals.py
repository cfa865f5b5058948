"""What the tests of the provider share: a job, an order, and waits that end."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.emulators.vast import VastEmulator
from tests.fake_outputs import FakeOutputStore, FakePacker
from tests.fakes import FakeClock, FakeScreen, FakeUserRequests
from tests.jobs import train_job
from tests.offers import rental_order
from tests.waiting import eventually
from vastrun.launcher.core import Instance, RentalOrder
from vastrun.launcher.core.errors import ProviderError, UnreachableError
from vastrun.launcher.core.job import JobSpec, Limits, Resources
from vastrun.launcher.decisions.policy import worst_case_usd
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.ports import Clock
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.transport import VastAccount
from vastrun.testing.setup import LEASE

LABEL = "vastrun-calm-heron-3f1a"


def open_market(vast: VastEmulator, state: Path, clock: Clock | None = None, **options: Any) -> VastProvider:
    """The provider, with a clock that passes every pause at once; the options are its own."""
    account = VastAccount(key=vast.account_key, server=vast.url, login=vast.login)
    return VastProvider(account, state, clock=clock or FakeClock(time.time()), **options)


def services_on(provider: VastProvider, folder: Path, clock: Any) -> Services:
    """What a launcher has that drives runs there, with a ledger in memory."""
    return Services(
        provider=provider,
        ledger=SqliteLedger(Path(":memory:"), now=clock.now, alive=lambda _: True),
        clock=clock,
        packer=FakePacker(folder),
        output_store=FakeOutputStore(),
        screen=FakeScreen(),
        user_requests=FakeUserRequests(clock),
        who="desk:1:0",
    )


def job(**resources: Any) -> JobSpec:
    wanted: dict[str, Any] = {"gpus": 1, "disk_gb": 10.0} | resources
    return train_job(resources=Resources(**wanted), limits=Limits(hours=1.0))


def order(provider: VastProvider, spec: JobSpec | None = None, **changes: Any) -> RentalOrder:
    """The best offer, with a lease that never acts."""
    offer = provider.search(spec or job())[0]
    ordered = rental_order(offer, env=LEASE, max_usd=worst_case_usd(spec or job(), offer))
    return replace(ordered, **changes)


def rent(provider: VastProvider) -> Instance:
    return provider.rent(order(provider))


def eventually_connects(provider: VastProvider, machine: Instance) -> None:
    """Returns once the box was reached."""

    def connects() -> bool:
        try:
            provider.connect(machine).close()
        except UnreachableError:
            return False
        return True

    assert eventually(connects, what="the machine")


def eventually_refused(provider: VastProvider, machine: Instance) -> ProviderError:
    """The error with which the box is given up, once its row says so."""

    def refused() -> ProviderError | None:
        try:
            provider.connect(machine).close()
        except UnreachableError:
            return None
        except ProviderError as error:
            return error
        return None

    error = eventually(refused, what="it is given up")
    assert error is not None
    return error


def show(vast: VastEmulator, machine: Instance, status: str) -> None:
    """Vast reads so from now on, once the machine runs."""
    assert eventually(lambda: vast.instances.get(int(machine.id)).runs)
    with vast.lock:
        vast.instances.get(int(machine.id)).actual = status
