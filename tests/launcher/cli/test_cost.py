"""`cost --by`: what runs cost together; `cost reconcile`: the ledger beside what was charged."""

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import CRASH, Terminal
from vastrun.contract.outcome import Outcome
from vastrun.launcher.core import Driver, Run
from vastrun.launcher.core.errors import ProviderError
from vastrun.launcher.cost.groups import GroupBy


def scored(outcome: Outcome) -> Outcome:
    return replace(outcome, scores={"rollout_nrmse": 0.25, "persistence_nrmse": 1.5})


GOOD = Training(outcome=scored)


def three_runs(folder: Path) -> Terminal:
    """A run that succeeded, one that crashed and one that trains, from the newest to the oldest."""
    terminal = Terminal(folder, GOOD, CRASH, GOOD)
    terminal.launch("--tag", "lr", "--tag", "new")
    terminal.launch("--tag", "lr", "--set", "name=other")
    terminal.launch("--detach")
    terminal.clock.sleep(3600)
    return terminal


def runs(terminal: Terminal) -> Sequence[Run]:
    """The oldest first: it succeeded, it crashed, it trains."""
    return terminal.ledger.runs()[::-1]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return three_runs(tmp_path)


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """For all tests of this file that only read."""
    return three_runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("by", GroupBy)
def test_what_is_added_up_is_what_the_runs_cost(read: Terminal, by: GroupBy) -> None:
    document = read.document("cost", "--by", by.value)
    total = document["total"]
    assert document["by"] == by
    assert total["usd"] == pytest.approx(read.document("cost")["usd"])
    assert (total["runs"], total["finished"]) == (3, 1)
    for parts in (("gpu_usd", "storage_usd", "traffic_usd"), ("training_usd", "idle_usd", "failed_usd")):
        assert sum(total[part] for part in parts) == pytest.approx(total["usd"])
    summed = sum(group["usd"] for group in document["groups"])
    twice = read.document("cost", runs(read)[0].id)["usd"] if by is GroupBy.TAG else 0.0
    assert summed == pytest.approx(total["usd"] + twice)


def test_what_was_spent_lately_leaves_out_what_was_spent_before(read: Terminal) -> None:
    lately = read.document("cost", "--since", "30m")
    assert [group["key"] for group in lately["groups"]] == [runs(read)[2].id]
    assert lately["total"]["usd"] == pytest.approx(1.8)
    before = read.document("cost", "--until", "30m")
    everything = read.document("cost", "--by", "run")
    assert lately["total"]["usd"] + before["total"]["usd"] == pytest.approx(everything["total"]["usd"])
    assert (lately["since"], lately["until"]) == (read.clock.now() - 1800, None)
    assert read.type("cost", "--until", "2020-01").stdout == "no runs in that time\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "soon"], "--since: expected a day like 2026-11-01, a month like 2026-11, today"),
        (["--until", "2026-02-30"], "--until: expected a day like 2026-11-01"),
        (["--since", "1h", "--until", "2h"], "--since is not before --until"),
        (["--by", "colour"], "--by: 'colour' is not one of 'run', 'batch', 'job', 'host'"),
        (["--csv", "--json"], "--json and --csv exclude each other"),
    ],
)
def test_unanswerable_questions_are_one_error(read: Terminal, options: Sequence[str], said: str) -> None:
    end = read.type("cost", *options)
    assert (end.exit_code, end.stdout) == (2, "")
    assert end.stderr.startswith(f"error: {said}")
    assert end.stderr.count("error:") == 1


def test_the_numbers_for_a_spreadsheet_are_those_of_the_document(read: Terminal) -> None:
    rows = list(csv.DictReader(io.StringIO(read.type("cost", "--by", "job", "--csv").stdout)))
    groups = read.document("cost", "--by", "job")["groups"]
    assert [row["job"] for row in rows] == [group["key"] for group in groups] == ["demo", "other"]
    for row, group in zip(rows, groups, strict=True):
        for name in ("usd", "idle_usd", "failed_usd", "gpu_hours", "runs", "finished"):
            assert float(row[name]) == group[name]
    assert rows[1]["usd_per_run"] == ""


def test_no_cell_of_a_spreadsheet_is_a_formula_or_ends_its_line(terminal: Terminal) -> None:
    good, bad, _ = runs(terminal)
    assert good.offer is not None
    for run, name in ((good, '=HYPERLINK("http://x")'), (bad, "RTX\n4090,1")):
        terminal.ledger.hold(run.id, Driver(who="desk:1:1.0", until=terminal.clock.now() + 60))
        terminal.ledger.save(replace(run, offer=replace(good.offer, gpu_name=name)), who="desk:1:1.0")
    names = [
        row["gpu"]
        for row in csv.DictReader(io.StringIO(terminal.type("cost", "--by", "gpu", "--csv").stdout))
    ]
    assert set(names) == {"RTX 4090", '\'=HYPERLINK("http://x")', "RTX 4090,1"}


def test_without_runs_it_says_so(tmp_path: Path) -> None:
    assert Terminal(tmp_path).type("cost", "--by", "job").stdout == "no runs yet\n"
    assert Terminal(tmp_path).document("cost", "--by", "job")["groups"] == []


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
