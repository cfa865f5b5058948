"""The table of data volumes, in both ledgers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.launcher.ledger.conftest import NOW, Hands
from vastrun.launcher.core import Volume
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.errors import BudgetError
from vastrun.launcher.ledger.sql import SqlLedger

DISK = Volume(
    provider="vast",
    name="pdebench",
    label="vastrun_0a1b2c3d_pdebench",
    host="41234",
    gb=200.0,
    usd_per_hour=0.05,
    created_at=NOW,
    used_at=NOW,
    run_id="calm-heron-3f1a",
)


def test_one_volume_of_a_name_exists_at_a_time(ledger: SqlLedger) -> None:
    records = ledger.volumes
    assert records.add(DISK, (), 1.0)
    assert not records.add(replace(DISK, created_at=NOW + 1), (), 1.0)
    assert records.add(replace(DISK, name="other"), (), 1.0)
    records.save(replace(DISK, deleted_at=NOW + 5))
    assert records.find("vast", "pdebench") is None
    again = replace(DISK, created_at=NOW + 9)
    assert records.add(again, (), 1.0)
    assert records.find("vast", "pdebench") == again
    assert [volume.created_at for volume in records.all() if volume.name == "pdebench"] == [NOW + 9, NOW]


def test_an_order_of_the_very_moment_of_one_that_was_refused_takes_its_row(ledger: SqlLedger) -> None:
    ledger.volumes.add(DISK, (), 1.0)
    ledger.volumes.save(replace(DISK, deleted_at=NOW))
    assert ledger.volumes.add(replace(DISK, host="41235"), (), 1.0)
    assert ledger.volumes.all() == [replace(DISK, host="41235")]


def test_what_is_saved_is_there_when_the_ledger_is_opened_again(hands: Hands) -> None:
    ledger = hands.open()
    ledger.volumes.add(DISK, (), 1.0)
    known = replace(DISK, volume_id="77123", used_at=NOW + 60, run_id="wise-otter-4b2c")
    ledger.volumes.save(known)
    assert hands.open().volumes.all(existing=True) == [known]


def test_a_volume_is_part_of_budgets_and_must_fit_into_them(ledger: SqlLedger, hands: Hands) -> None:
    budget = Budget(name="month", usd=1.0)
    ledger.volumes.add(DISK, (budget,), 0.6)
    hands.now = NOW + 10 * 3600
    assert ledger.use_of(budget).spent_usd == pytest.approx(0.5)
    assert ledger.use_of(replace(budget, since=NOW + 9 * 3600)).spent_usd == pytest.approx(0.05)
    assert ledger.use_of(replace(budget, batch="sweep")).spent_usd == 0.0
    with pytest.raises(BudgetError, match="month"):
        ledger.volumes.add(replace(DISK, name="other"), (budget,), 0.6)
    assert ledger.volumes.find("vast", "other") is None
