"""What Vast charged is known by the label of the machine, some time after it is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.core.errors import AuthError
from launcher.providers.vast import VastProvider
from launcher.providers.vast.account import NEEDED
from launcher.providers.vast.api import VastAccount
from tests.emulators.clock import Clock
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import LABEL, rent

HOUR_S = 3600.0


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    """Its time stands still."""
    with VastEmulator(clock=Clock(0), rate_limits=False) as vast:
        yield vast


def test_charges_are_there_once_they_are_settled(vast: VastEmulator, provider: VastProvider) -> None:
    vast.advance(
        90 - vast.clock.now() % 60
    )  # a bill has a line for each minute: it begins in the midst of one
    began = vast.clock.now()
    machine = rent(provider)
    vast.advance(10 * HOUR_S)
    provider.destroy(machine.id)
    assert provider.charged(began, vast.clock.now()) == {}

    vast.advance(60.0)

    charged = provider.charged(began, vast.clock.now())
    assert charged == {LABEL: pytest.approx(vast.billing.total_usd())}
    assert charged[LABEL] > 1


def test_a_key_that_may_not_read_bills_is_told_so(vast: VastEmulator, tmp_path: Path) -> None:
    permissions = {"api": {category: {} for category in NEEDED if category != "billing_read"}}
    key = vast.account.add_key("launcher", permissions=permissions).key
    provider = VastProvider(VastAccount(key=key, server=vast.url), tmp_path, clock=FakeClock(time.time()))

    with pytest.raises(AuthError) as caught:
        provider.charged(0.0, time.time())
    assert "billing_read" in caught.value.hint
