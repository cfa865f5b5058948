"""What runs on an emulated Vast cost, with the installed command: added up, and beside the bill."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chaos.wallclock import WallClock
from tests.e2e.terminal import Terminal
from tests.e2e.test_vast_launch import SCRIPT
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually
from vastrun.launcher.cost.reconciliation import ROUNDED_USD, SETTLEMENT_S

PASSES = (*SCRIPT, "--set", "command=python script.py passes")


def reconcile(terminal: Terminal, **variables: str) -> Any:
    """The document, of a bill that is explained."""
    end = terminal.type("cost", "reconcile", "--json", **variables)
    document = end.json()
    assert (end.exit_code, document["explained"]) == (0, True), end.out
    return document


@pytest.mark.slow
def test_a_bill_is_explained_until_it_is_settled_and_is_the_cost_then_and_another_ledger_is_none_of_it(
    rented: Terminal, vast: VastEmulator, tmp_path: Path
) -> None:
    assert rented.type(*PASSES, "--tag", "mine").exit_code == 0
    (run,) = reconcile(rented)["runs"]
    assert set(run["reasons"]) <= {"rounded", "not_settled"}
    (mine,) = vast.billing.meters.values()

    (tmp_path / "other").mkdir()
    other = Terminal(tmp_path / "other", **vast.variables)
    try:
        assert other.type(*PASSES).exit_code == 0
    finally:
        other.clean()
    (theirs,) = set(vast.billing.meters) - {mine.instance_id}

    def settled() -> Any:
        document = reconcile(rented)
        besides = [(one["kind"], one["usd"]) for one in document["charged_besides"]]
        both = [document["charged_usd"], *(usd for _, usd in besides)]
        bills = [mine.total_usd, vast.billing.total_usd(theirs)]
        return len(both) == 2 and both == pytest.approx(bills, abs=ROUNDED_USD) and document

    document = eventually(settled, what="the settled bill of both")
    assert [one["kind"] for one in document["charged_besides"]] == ["other_ledger"]
    (run,) = document["runs"]
    assert run["difference_usd"] == pytest.approx(run["charged_usd"] - run["counted_usd"])

    (row,) = csv.DictReader(io.StringIO(rented.type("cost", "--by", "tag", "--csv").out))
    assert (row["tag"], row["finished"], float(row["usd"])) == ("mine", "1", run["counted_usd"])
    assert float(row["training_usd"]) + float(row["idle_usd"]) == pytest.approx(run["counted_usd"])
    assert 0 < float(row["idle_usd"]) < run["counted_usd"]

    later = WallClock(tmp_path / "wallclock")
    later.advance(SETTLEMENT_S)
    vast.advance(SETTLEMENT_S)
    (run,) = reconcile(rented, **later.variables)["runs"]
    assert run["settled"]
    (cost,) = rented.type("cost", "--json").json()["runs"]
    assert (cost["usd_source"], cost["usd"]) == ("charged", pytest.approx(mine.total_usd, abs=ROUNDED_USD))
    assert cost["counted_usd"] == run["counted_usd"]
    assert rented.status()["run"]["usd"] == cost["usd"]


@pytest.mark.slow
def test_a_bill_that_goes_on_after_the_machine_is_within_the_range_and_is_the_cost_once_it_is_settled(
    rented: Terminal, vast: VastEmulator, tmp_path: Path
) -> None:
    vast.billing.tail_s = lambda: 290.0
    end = rented.type(*PASSES)
    assert end.exit_code == 0
    assert re.search(r"cost +\$[\d.]+ at \$[\d.]+/h, at most \$[\d.]+ until the bill is in", end.out), end.out
    (meter,) = vast.billing.meters.values()
    (cost,) = rented.type("cost", "--json").json()["runs"]
    assert cost["usd"] < meter.total_usd <= cost["at_most_usd"]

    later = WallClock(tmp_path / "wallclock")
    later.advance(SETTLEMENT_S)
    vast.advance(SETTLEMENT_S)
    (run,) = reconcile(rented, **later.variables)["runs"]
    assert (run["settled"], run["reasons"]) == (True, ["bill_ran_on"])
    (cost,) = rented.type("cost", "--json").json()["runs"]
    assert cost["usd"] == cost["at_most_usd"] == pytest.approx(meter.total_usd, abs=ROUNDED_USD)
