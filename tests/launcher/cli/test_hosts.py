"""`vastrun hosts` shows which machines are avoided, and what else is with them."""

from dataclasses import replace

from vastrun.launcher.cli.machines import hosts_table
from vastrun.launcher.decisions.history import HostRecord

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
