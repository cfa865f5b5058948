"""`cost reconcile`: the ledger beside what was charged; and from when on a run costs that."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.cli.three_runs import runs, three_runs
from tests.launcher.terminal import Terminal
from vastrun.launcher.core import Driver
from vastrun.launcher.core.errors import ProviderError


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return three_runs(tmp_path)


def reconcile(terminal: Terminal, *options: str) -> tuple[int, Any]:
    end = terminal.type("cost", "reconcile", "--json", *options)
    return end.exit_code, json.loads(end.stdout)


def test_each_run_is_beside_its_bill_with_the_reason_of_the_difference(terminal: Terminal) -> None:
    good, bad, open_run = runs(terminal)
    counted = {run.id: terminal.document("cost", run.id)["usd"] for run in runs(terminal)}
    terminal.market.charges = {good.label: counted[good.id], bad.label: counted[bad.id] - 0.0005}
    code, document = reconcile(terminal)
    assert (code, document["explained"]) == (0, True)
    assert {run["id"]: run["reasons"] for run in document["runs"]} == {
        good.id: [],
        bad.id: ["rounded"],
        open_run.id: ["not_settled"],
    }
    assert {run["id"]: run["charged_usd"] is None for run in document["runs"]} == {
        good.id: False,
        bad.id: False,
        open_run.id: True,
    }
    assert document["counted_usd"] == pytest.approx(sum(counted.values()))


def test_what_was_charged_for_others_is_told_and_is_no_fault(terminal: Terminal) -> None:
    usd = terminal.document("cost")["usd"]
    good, bad, _ = runs(terminal)
    terminal.market.charges = {good.label: 0.0204, bad.label: 0.0204, "my own box": 2.0, "": 1.0}
    terminal.market.charges["vastrun-old-heron-1234.00000000"] = 0.5
    code, document = reconcile(terminal)
    assert code == 0, document
    assert [(one["label"], one["kind"], one["usd"]) for one in document["charged_besides"]] == [
        ("my own box", "not_a_run", 2.0),
        ("", "not_a_run", 1.0),
        ("vastrun-old-heron-1234.00000000", "other_ledger", 0.5),
    ]
    assert usd == pytest.approx(document["counted_usd"])
    said = terminal.type("cost", "reconcile").stdout
    assert "other charges: $3.000 for machines that vastrun did not rent (my own box, no\n  label)" in said


def test_a_run_of_this_ledger_that_it_does_not_have_is_not_explained(terminal: Terminal) -> None:
    terminal.market.charges = {f"vastrun-lost-heron-1234.{terminal.ledger.id}": 0.5}
    code, document = reconcile(terminal)
    assert (code, document["explained"]) == (1, False)
    assert [one["kind"] for one in document["charged_besides"]] == ["unknown_run"]
    assert "$0.500 NOT EXPLAINED" in terminal.type("cost", "reconcile").stdout


def test_runs_of_before_are_left_out_and_their_charges_are_no_strangers(terminal: Terminal) -> None:
    good, _, open_run = runs(terminal)
    terminal.market.charges = {good.label: 7.0}
    code, document = reconcile(terminal, "--since", "2h")
    assert code == 1
    terminal.clock.sleep(7200)
    code, document = reconcile(terminal, "--since", "1h")
    assert (code, document["runs"], document["charged_besides"]) == (0, [], [])
    assert (
        "no run rented a machine that is billed since "
        in terminal.type("cost", "reconcile", "--since", "1h").stdout
    )
    assert open_run.rented_at is not None


def test_a_run_costs_what_was_charged_once_that_is_settled_and_explained(terminal: Terminal) -> None:
    good, bad, open_run = runs(terminal)
    counted = {run.id: terminal.document("cost", run.id)["usd"] for run in runs(terminal)}
    charged_usd = counted[good.id] - 0.0005
    terminal.market.charges = {good.label: charged_usd, open_run.label: 0.1}
    before = terminal.document("cost", good.id)["runs"][0]
    assert (before["usd_source"], before["counted_usd"]) == ("counted", before["usd"])

    _, document = reconcile(terminal)
    assert {run["id"]: run["settled"] for run in document["runs"]} == {
        good.id: True,
        bad.id: False,  # nothing was charged for it
        open_run.id: False,
    }
    shown = {run["id"]: run for run in terminal.document("cost")["runs"]}
    assert {run_id: run["usd_source"] for run_id, run in shown.items()} == {
        good.id: "charged",
        bad.id: "counted",
        open_run.id: "counted",
    }
    assert shown[good.id]["usd"] == pytest.approx(charged_usd)
    assert shown[good.id]["counted_usd"] == pytest.approx(counted[good.id])
    assert [shown[run.id]["usd"] for run in (bad, open_run)] == [counted[bad.id], counted[open_run.id]]
    row = terminal.document("status", good.id)["run"]
    assert (row["usd_source"], row["usd"]) == ("charged", pytest.approx(charged_usd))
    assert terminal.document("cost", "--by", "job")["total"]["usd"] == terminal.document("cost")["usd"]

    assert reconcile(terminal)[1]["runs"] == document["runs"]  # it is compared with what was counted
    assert "settled: for 1 of 3 runs" in terminal.type("cost", "reconcile").stdout
    assert "as charged: 1 of 3 runs" in terminal.type("cost").stdout
    assert f"${charged_usd:.3f} charged, at " in terminal.type("status", good.id).stdout


@pytest.mark.parametrize("words", [["launch"], ["reap"]], ids=" ".join)
def test_later_calls_to_the_provider_settle_what_is_due(terminal: Terminal, words: list[str]) -> None:
    good, bad, open_run = runs(terminal)
    counted = {run.id: terminal.document("cost", run.id)["usd"] for run in runs(terminal)}
    terminal.market.charges = {good.label: counted[good.id] - 0.0005, open_run.label: 0.1}
    talk(terminal, *words)
    shown = {run["id"]: run for run in terminal.document("cost")["runs"]}
    assert shown[good.id]["usd_source"] == "charged"
    assert shown[good.id]["usd"] == pytest.approx(counted[good.id] - 0.0005)
    assert {shown[run.id]["usd_source"] for run in (bad, open_run)} == {"counted"}


@pytest.mark.parametrize("words", [["launch"], ["reap"]], ids=" ".join)
def test_a_provider_that_does_not_say_what_it_charged_hurts_no_other_command(
    terminal: Terminal, words: list[str]
) -> None:
    terminal.market.charges = {runs(terminal)[0].label: 0.1}
    terminal.market.charge_error = ProviderError("the charges cannot be read")
    talk(terminal, *words)
    assert {run["usd_source"] for run in terminal.document("cost")["runs"]} == {"counted"}


def test_a_reap_that_only_lists_settles_nothing(terminal: Terminal) -> None:
    terminal.market.charges = {runs(terminal)[0].label: 0.1}
    talk(terminal, "reap", "--dry-run")
    assert {run["usd_source"] for run in terminal.document("cost")["runs"]} == {"counted"}


def talk(terminal: Terminal, *words: str) -> None:
    end = terminal.launch() if words == ("launch",) else terminal.type(*words, "--provider", "fake")
    assert end.exit_code == 0, end.output


def test_a_bill_that_is_corrected_corrects_the_cost(terminal: Terminal) -> None:
    good = runs(terminal)[0]
    for usd in (7.0, 5.0):
        terminal.market.charges = {good.label: usd}
        code, document = reconcile(terminal)
        assert (code, document["explained"]) == (1, False)  # more than its machine can have cost, yet paid
        assert terminal.document("cost", good.id)["usd"] == pytest.approx(usd)


def test_a_run_that_somebody_drives_is_not_written(terminal: Terminal) -> None:
    good = runs(terminal)[0]
    usd = terminal.document("cost", good.id)["usd"]
    terminal.market.charges = {good.label: usd + 1.0}
    terminal.ledger.hold(good.id, Driver(who="desk:2:1.0", until=terminal.clock.now() + 60))
    _, document = reconcile(terminal)
    assert [run["settled"] for run in document["runs"]] == [False] * 3
    assert terminal.document("cost", good.id)["usd"] == usd


def test_a_provider_without_bills_is_named(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, usd_per_hour=0.0)
    terminal.launch()
    terminal.market.bills = False
    code, document = reconcile(terminal)
    assert (code, document["runs"], document["without_bill"]) == (0, [], {"fake": 1})
    assert "1 run of fake: it sends no bill" in terminal.type("cost", "reconcile").stdout


def test_the_help_names_reconcile_and_a_run_may_be_named_as_before(terminal: Terminal) -> None:
    said = terminal.type("cost", "--help").stdout
    assert re.search(r"^  reconcile +Compare the ledger with the bill", said, re.MULTILINE)
    assert terminal.type("cost", "reconcile", "--help").exit_code == 0
    run = runs(terminal)[0]
    assert terminal.document("cost", run.id[:6])["runs"][0]["id"] == run.id
    assert terminal.type("cost", "nobody").exit_code == 2
