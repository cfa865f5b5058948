"""A bid is changed on Vast: a machine that was outbid runs again, at the new price."""

import pytest

from tests.emulators.vast import VastEmulator
from tests.launcher.providers.vast.rentals import eventually_connects, eventually_refused, job, order
from tests.waiting import eventually
from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import GoneError, ProviderError
from vastrun.launcher.providers.vast import VastProvider


@pytest.mark.slow
def test_a_machine_that_was_outbid_lists_the_bid_that_wins_and_runs_again_for_it(
    vast: VastEmulator, provider: VastProvider
) -> None:
    machine = provider.rent(order(provider, job(interruptible=True)))
    eventually_connects(provider, machine)
    vast.faults.add("outbid")
    assert eventually_refused(provider, machine).cause is Cause.PREEMPTED
    (listed,) = provider.instances()
    assert listed.idle and listed.min_bid_usd_per_hour > machine.usd_per_hour
    provider.change_bid(machine.id, round(listed.min_bid_usd_per_hour, 4) + 0.001)
    eventually_connects(provider, machine)
    again = eventually(lambda: provider.machine(machine.id), what="its row")
    assert again is not None and again.usd_per_hour > listed.min_bid_usd_per_hour
    provider.destroy(machine.id)


def test_bid_that_vast_refuses_and_one_for_a_machine_that_is_gone_are_errors(provider: VastProvider) -> None:
    machine = provider.rent(order(provider, job(interruptible=True)))
    with pytest.raises(ProviderError, match="price is out of range"):
        provider.change_bid(machine.id, 999.0)
    provider.destroy(machine.id)
    with pytest.raises(GoneError):
        provider.change_bid(machine.id, 0.5)
