"""`vastrun hold` and `vastrun hosts`: machines that are kept, and those that are avoided."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.launcher.terminal import Terminal
from vastrun.launcher.cli.machines import hosts_table
from vastrun.launcher.core import Offer
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.decisions.history import HostRecord


@pytest.mark.parametrize(
    ("slots", "hint"),
    [("1", "--set resources.disk_gb=74"), ("3", "one machine must have the resources of 3 slots, ")],
)
def test_a_machine_too_small_for_its_slots_is_refused(terminal: Terminal, slots: str, hint: str) -> None:
    def nothing(offers: Sequence[Offer]) -> Sequence[Offer]:
        raise NoOfferError("nothing fits", hint="--set resources.disk_gb=74")

    terminal.market.change = nothing
    out = str(terminal.folder / "out")
    end = terminal.type("hold", str(terminal.job), "--slots", slots, "-y", "--out", out)
    assert end.exit_code == 8
    assert hint in end.stderr
    assert ("fewer --slots" in end.stderr) is (slots != "1")


NOW = 1_800_000_000.0
HOST = HostRecord(
    provider="vast",
    host="m1",
    description="1 x RTX 4090",
    runs=1,
    failures=1,
    score=1.0,
    last_run_at=NOW,
    account="7",
    address="45.3.2.1",
    avoided="machine",
    avoided_until=NOW + 7200,
)


def test_a_machine_that_failed_is_listed_with_the_site_that_is_avoided_for_it() -> None:
    header, row, site = hosts_table([HOST], NOW).splitlines()
    assert row[header.index("AVOIDED FOR") :].startswith("machine, 2h")
    assert site == "avoided: every machine at 45.3.2.1"


def test_an_account_is_listed_once_two_of_its_machines_failed() -> None:
    other = replace(HOST, host="m2", address="")
    lines = hosts_table([HOST, other, replace(HOST, host="m3", avoided="account")], NOW).splitlines()
    assert "account" in lines[3]
    assert lines[4:] == ["avoided: every machine at 45.3.2.1", "avoided: every machine of account 7"]
