"""What Vast charged is known by the label of the machine, some time after it is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.emulators.clock import Clock
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import LABEL, rent
from vastrun.launcher.core.errors import AuthError, UnreachableError
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.account import charges_of
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.routes import NEEDED
from vastrun.launcher.providers.vast.rows import parse_charge
from vastrun.launcher.providers.vast.transport import VastAccount

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
    assert charges_of(provider.api, began, vast.clock.now()) == []

    vast.advance(60.0)

    (charge,) = charges_of(provider.api, began, vast.clock.now())
    assert (charge.instance_id, charge.label) == (machine.id, LABEL)
    assert charge.usd == pytest.approx(vast.billing.total_usd())
    assert charge.usd > 1
    assert charge.until == pytest.approx(vast.clock.now() - 60.0)


USD_BY_ITEM = (("gpu", 0.95), ("disk", 0.05), ("bwd", 0.2), ("bwu", 0.1))


def row(**changes: Any) -> dict[str, Any]:
    """A charge as Vast sends it, but for the changes."""
    items = [{"type": kind, "amount": amount} for kind, amount in USD_BY_ITEM]
    honest = {"source": "instance-7", "type": "instance", "start": 10.0, "end": 20.0, "amount": 1.3}
    return {**honest, "metadata": {"label": LABEL}, "items": items} | changes


def test_a_charge_says_whose_it_is_and_what_of_it_was_for_storage_and_traffic() -> None:
    charge = parse_charge(row())
    assert (charge.instance_id, charge.label, charge.usd, charge.until) == ("7", LABEL, 1.3, 20.0)
    assert (charge.storage_usd, charge.traffic_usd) == pytest.approx((0.05, 0.3))
    assert parse_charge(row(amount="-2.5")).usd == -2.5  # a credit


@pytest.mark.parametrize(
    "changes",
    [
        {"source": None},
        {"source": "volume-7"},
        {"source": "instance-7; rm -rf /"},
        {"source": f"instance-{'7' * 400}"},
        {"source": ["instance-7"]},
    ],
)
def test_a_charge_that_is_for_no_machine_of_vast_is_for_none(changes: dict[str, Any]) -> None:
    assert parse_charge(row(**changes)).instance_id == ""


def test_a_charge_without_a_label_has_none_and_a_long_one_is_cut() -> None:
    assert [parse_charge(row(metadata=value)).label for value in (None, {}, {"label": None})] == ["", "", ""]
    assert len(parse_charge(row(metadata={"label": "x" * 10**6})).label) == 256


LIES: Mapping[str, Any] = {
    "no number": row(amount="much"),
    "nothing": row(amount=None),
    "NaN": row(amount=float("nan")),
    "no end of money": row(amount=float("inf")),
    "four hundred digits": row(amount=10**400),
    "more than any account has": row(amount=1e10),
    "less than any account has": row(amount=-1e10),
    "a list for dollars": row(amount=[1.0]),
    "metadata that are text": row(metadata="label"),
    "items that are a number": row(items=7),
    "items that are text": row(items="gpu"),
    "an item that is null": row(items=[None]),
    "an item for NaN": row(items=[{"type": "bwd", "amount": float("nan")}]),
    "an end that is text": row(end="noon"),
    "an end that is no number": row(end=float("nan")),
    "an end after all time": row(end=1e300),
    "null": None,
    "a list": [1.0],
    "text": "1.0",
}
"""What no honest list of charges says."""


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_charge_that_makes_no_sense_is_an_error_and_no_number(lie: Any) -> None:
    with pytest.raises(UnreachableError, match="a charge that cannot be read"):
        parse_charge(lie)


def test_a_row_that_two_pages_show_is_charged_once() -> None:
    rows = [row(), row(start=30.0, end=40.0), row(), row(source=None), row(source=None)]
    api = cast("VastApi", SimpleNamespace(charges=lambda since, until: rows))
    assert [charge.instance_id for charge in charges_of(api, 0.0, 1.0)] == ["7", "7", "", ""]


def test_a_day_before_and_a_day_after_are_asked_for_too() -> None:
    asked: list[tuple[float, float]] = []
    api = cast("VastApi", SimpleNamespace(charges=lambda since, until: asked.append((since, until)) or []))
    assert charges_of(api, 5_000_000.0, 5_003_600.0) == []
    assert asked == [(5_000_000.0 - 24 * HOUR_S, 5_003_600.0 + 24 * HOUR_S)]


def test_a_key_that_may_not_read_bills_is_told_so(vast: VastEmulator, tmp_path: Path) -> None:
    permissions = {"api": {category: {} for category in NEEDED if category != "billing_read"}}
    key = vast.account.add_key("launcher", permissions=permissions).key
    provider = VastProvider(VastAccount(key=key, server=vast.url), tmp_path, clock=FakeClock(time.time()))

    with pytest.raises(AuthError) as caught:
        charges_of(provider.api, 0.0, time.time())
    assert "billing_read" in caught.value.hint
