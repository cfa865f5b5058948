"""What Vast charged is known by the label of the machine, some time after it is gone."""

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
from vastrun.launcher.providers.vast.calls import NEEDED
from vastrun.launcher.providers.vast.rows import parse_charge
from vastrun.launcher.providers.vast.transport import VastAccount

HOUR_S, DAY_S = 3600.0, 86400.0


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    """Its time stands still."""
    with VastEmulator(clock=Clock(0), rate_limits=False) as vast:
        yield vast


def test_charges_are_there_once_they_are_settled(vast: VastEmulator, provider: VastProvider) -> None:
    vast.advance(DAY_S - vast.clock.now() % DAY_S)  # a bill has a row for each day: it begins with one
    began = vast.clock.now()
    machine = rent(provider)
    vast.advance(10 * HOUR_S)
    provider.destroy(machine.id)
    assert charges_of(provider.api, began, vast.clock.now()) == []

    vast.advance(60.0)

    (charge,) = charges_of(provider.api, began, vast.clock.now())
    assert (charge.instance_id, charge.label) == (machine.id, LABEL)
    assert charge.usd == round(vast.billing.total_usd(), 3)
    assert charge.usd > 1
    assert charge.until >= vast.clock.now() - 60.0


USD_BY_ITEM = (("gpu", 0.95), ("disk", 0.05), ("bwd", 0.2), ("bwu", 0.1))


def row(**changes: Any) -> dict[str, Any]:
    """A charge as Vast sends it, but for the changes."""
    items = [{"type": kind, "amount": amount} for kind, amount in USD_BY_ITEM]
    honest = {"source": "instance-7", "type": "instance", "start": 10.0, "end": 20.0, "amount": 1.3}
    return {**honest, "metadata": {"label": LABEL}, "items": items} | changes


def test_a_charge_says_whose_it_is_and_what_of_it_was_for_storage_and_traffic() -> None:
    charge = parse_charge(row())
    assert (charge.instance_id, charge.source, charge.label, charge.usd) == ("7", "", LABEL, 1.3)
    assert (charge.storage_usd, charge.traffic_usd) == pytest.approx((0.05, 0.3))
    assert parse_charge(row(amount="-2.5")).usd == -2.5  # a credit


def test_a_charge_is_for_all_of_the_day_that_begins_at_its_end() -> None:
    assert parse_charge(row()).until == 20.0 + DAY_S
    assert parse_charge(row(end=None)).until == 0.0  # unknown


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (None, ""),
        ("volume-7", "volume-7"),
        ("instance-7; rm -rf /", "instance-7; rm -rf /"),
        (f"instance-{'7' * 400}", f"instance-{'7' * 247}"),
        (["instance-7"], "['instance-7']"),
    ],
)
def test_a_charge_that_is_for_no_machine_of_vast_is_named_by_its_source(source: Any, name: str) -> None:
    charge = parse_charge(row(source=source))
    assert (charge.instance_id, charge.source, charge.usd) == ("", name, 1.3)


def test_a_charge_without_a_label_has_none_and_a_long_one_is_cut() -> None:
    assert [parse_charge(row(metadata=value)).label for value in (None, {}, {"label": None})] == ["", "", ""]
    assert len(parse_charge(row(metadata={"label": "x" * 10**6})).label) == 256


NO_AMOUNT: Mapping[str, Any] = {
    "no number": "much",
    "nothing": None,
    "NaN": float("nan"),
    "no end of money": float("inf"),
    "four hundred digits": 10**400,
    "more than any account has": 1e10,
    "less than any account has": -1e10,
    "a list for dollars": [1.0],
}
"""What no honest charge comes to."""


@pytest.mark.parametrize("amount", NO_AMOUNT.values(), ids=NO_AMOUNT)
def test_a_charge_without_an_amount_is_no_number_and_says_so(amount: Any) -> None:
    for source in ("instance-7", "volume-7"):
        charge = parse_charge(row(source=source, amount=amount))
        assert (charge.usd, charge.is_readable) == (0.0, False)
    with pytest.raises(UnreachableError, match="a charge that cannot be read"):
        parse_charge(row(source=None, amount=amount))  # of any machine


ODD_FIELDS: Mapping[str, dict[str, Any]] = {
    "metadata that are text": {"metadata": "label"},
    "no items": {"items": None},
    "items that are a number": {"items": 7},
    "items that are text": {"items": "gpu"},
    "an item that is null": {"items": [None]},
    "an item for NaN": {"items": [{"type": "bwd", "amount": float("nan")}]},
    "an item of no type": {"items": [{"amount": 1.0}]},
    "an end that is text": {"end": "noon"},
    "an end that is no number": {"end": float("nan")},
    "an end after all time": {"end": 1e300},
}


@pytest.mark.parametrize("odd", ODD_FIELDS.values(), ids=ODD_FIELDS)
def test_an_odd_field_hides_no_more_than_itself(odd: dict[str, Any]) -> None:
    charge = parse_charge(row(**odd))
    assert (charge.instance_id, charge.usd, charge.is_readable) == ("7", 1.3, True)
    assert bool(charge.until) is ("end" not in odd) and bool(charge.label) is ("metadata" not in odd)


def test_an_item_that_makes_no_sense_hides_no_other() -> None:
    assert parse_charge(row(items=[None, {"type": "disk", "amount": 0.05}])).storage_usd == 0.05


@pytest.mark.parametrize("lie", [None, [1.0], "1.0"])
def test_what_is_no_charge_at_all_is_an_error(lie: Any) -> None:
    with pytest.raises(UnreachableError, match="a charge that cannot be read"):
        parse_charge(lie)


def test_a_row_that_two_pages_show_is_charged_once() -> None:
    volume = row(source="volume-7")
    rows = [row(), row(start=30.0, end=40.0), row(), row(source=None), row(source=None), volume, volume]
    api = cast("VastApi", SimpleNamespace(charges=lambda since, until: rows))
    charges = charges_of(api, 0.0, 1.0)
    assert [charge.instance_id or charge.source for charge in charges] == ["7", "7", "", "", "volume-7"]


def test_a_day_before_and_a_day_after_are_asked_for_too() -> None:
    asked: list[tuple[float, float]] = []
    api = cast("VastApi", SimpleNamespace(charges=lambda since, until: asked.append((since, until)) or []))
    assert charges_of(api, 5_000_000.0, 5_003_600.0) == []
    assert asked == [(5_000_000.0 - DAY_S, 5_003_600.0 + DAY_S)]


def test_a_key_that_may_not_read_bills_is_told_so(vast: VastEmulator, tmp_path: Path) -> None:
    permissions = {"api": {category: {} for category in NEEDED if category != "billing_read"}}
    key = vast.account.add_key("launcher", permissions=permissions).key
    provider = VastProvider(VastAccount(key=key, server=vast.url), tmp_path, clock=FakeClock(time.time()))
    with pytest.raises(AuthError) as caught:
        charges_of(provider.api, 0.0, time.time())
    assert "billing_read" in caught.value.hint
