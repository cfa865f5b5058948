"""Data volumes on the command line: what they cost, and how they are deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.launcher.terminal import Terminal
from vastrun.launcher.commands.volumes import UNUSED_S
from vastrun.launcher.core.errors import AuthError, UnreachableError

VOLUME = ("--set", "volume.name=pdebench", "--set", "volume.gb=200")


@pytest.fixture
def kept(terminal: Terminal) -> Terminal:
    """A run has ended, and its volume is free."""
    assert terminal.launch(*VOLUME).exit_code == 0
    terminal.clock.sleep(60)
    return terminal


def test_launch_warns_that_a_volume_is_charged_on(terminal: Terminal) -> None:
    plan = terminal.type("plan", str(terminal.job), *VOLUME)
    assert "volume pdebench is charged on top of limits.usd, up to $60.00 a month" in plan.output
    assert "until `vastrun reap --provider fake --volume pdebench`" in plan.output


def test_plan_says_where_the_volume_is_and_why_its_machine_comes_first(terminal: Terminal) -> None:
    plan = ("plan", str(terminal.job), *VOLUME)
    assert "created on that machine for at most $60.00 a month" in terminal.type(*plan).stdout
    terminal.market.taken.add("offer-1")
    assert terminal.launch(*VOLUME).exit_code == 0
    terminal.market.taken.clear()
    assert "pdebench, 200 GB: on that machine, $20.00 a month" in terminal.type(*plan).stdout
    first, second, *_ = terminal.document(*plan)["offers"]
    assert (first["host"], second["host"]) == ("host-2", "host-1")
    explained = terminal.type(*plan, "--explain").stdout
    assert "It is first because of its volume pdebench: to download 200 GB again on the next one" in explained


def test_reap_lists_volumes_and_leaves_them_alone(kept: Terminal) -> None:
    done = kept.type("reap", "-y")
    assert done.exit_code == 0
    assert "data volumes, charged until they are deleted:" in done.stdout
    assert "pdebench" in done.stdout and "kept" in done.stdout
    assert not kept.market.disks.deleted


def test_reap_points_out_a_volume_that_no_run_has_used_for_long(kept: Terminal) -> None:
    kept.clock.sleep(UNUSED_S)
    done = kept.type("reap", "--dry-run")
    assert "no run has used pdebench for 7d" in done.stdout
    assert "`vastrun reap --provider fake --volume pdebench` deletes it and its data" in done.stdout
    (volume,) = kept.document("reap", "--dry-run")["volumes"]
    assert volume["unused"] and not volume["in_use"]
    assert volume["usd_per_month"] == pytest.approx(20.0)
    assert volume["usd"] == pytest.approx(20 * 7 / 30, rel=0.02)


def test_a_volume_is_deleted_once_that_is_confirmed(kept: Terminal) -> None:
    assert kept.type("reap", "--volume", "pdebench", keys="y\n").exit_code == 2
    assert kept.type("reap", "--volume", "pdebench", "--dry-run").exit_code == 0
    assert not kept.market.disks.deleted
    done = kept.type("reap", "--volume", "pdebench", "-y")
    assert done.exit_code == 0 and "volume pdebench deleted" in done.stdout
    assert kept.market.disks.deleted == ["701"]
    assert not kept.ledger.volumes.all(existing=True)
    again = kept.type("reap", "--volume", "pdebench", "-y")
    assert again.exit_code == 2 and "has no volume 'pdebench'" in again.stderr


def test_a_volume_in_use_is_not_deleted(kept: Terminal) -> None:
    kept.market.disks.there["701"].released_at = None
    done = kept.type("reap", "--volume", "pdebench", "-y")
    assert done.exit_code == 2 and "volume pdebench is in use" in done.stderr
    assert not kept.market.disks.deleted


def test_a_volume_that_another_ledger_made_is_neither_shown_nor_deleted(kept: Terminal) -> None:
    volume = kept.market.disks.there["701"]
    stranger = replace(volume.listed, id="801", label="vastrun_00000000_pdebench")
    kept.market.disks.there["801"] = replace(volume, listed=stranger)
    assert kept.type("reap", "--volume", "pdebench", "-y").exit_code == 0
    assert list(kept.market.disks.there) == ["801"]


def test_a_volume_that_the_provider_goes_on_listing_is_not_called_deleted(kept: Terminal) -> None:
    kept.market.disks.keeps_deleted = True
    done = kept.type("reap", "--volume", "pdebench", "-y")
    assert done.exit_code == 11
    assert "still lists it" in done.stderr
    assert kept.ledger.volumes.all(existing=True)


def test_volumes_that_are_gone_are_noted_as_gone(kept: Terminal) -> None:
    kept.market.disks.there.clear()
    assert "not listed" in kept.type("reap", "--dry-run").stdout
    assert kept.type("reap", "--volume", "pdebench", "-y").exit_code == 2
    kept.clock.sleep(600)
    assert kept.document("reap", "--dry-run")["volumes"] == []
    (volume,) = kept.ledger.volumes.all()
    assert volume.deleted_at is not None


@pytest.mark.parametrize("error", [AuthError("no permission"), UnreachableError("silence")], ids=repr)
def test_a_list_that_cannot_be_had_ends_machines_all_the_same(kept: Terminal, error: AuthError) -> None:
    kept.market.disks.error = error
    done = kept.type("reap", "-y")
    assert done.exit_code == 0 and "data volumes cannot be listed" in done.stderr
    assert kept.ledger.volumes.all(existing=True)


def test_cost_shows_volumes_beside_the_runs(kept: Terminal) -> None:
    kept.clock.sleep(15 * 86400)
    text = kept.type("cost").stdout
    assert "VOLUME" in text and "so far" in text
    document = kept.document("cost")
    (volume,) = document["volumes"]
    assert volume["usd"] == pytest.approx(10.0, rel=0.01)
    assert document["usd"] < 1.0
