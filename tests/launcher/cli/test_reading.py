"""The commands that read: status, why, cost, logs, pull, reap."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import CRASH, HANG, Terminal, hang
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome, RankEnd, StartRecord
from vastrun.launcher.commands.queries import all_rows
from vastrun.launcher.core import Cause, Driver, Phase, Run
from vastrun.launcher.outputs.store import LARGE_BYTES
from vastrun.launcher.ui.render.runs import runs_table
from vastrun.launcher.ui.report.index_page import Index, PageQuery, index_page
from vastrun.launcher.ui.report.page import Frame


def only_run(terminal: Terminal) -> Run:
    (run,) = terminal.ledger.runs()
    return run


def test_status_lists_open_runs_first_and_cuts_only_what_a_terminal_is_too_narrow_for(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Training(seconds=600.0), Training())
    terminal.launch("--detach", "--set", "name=a-job-with-quite-a-long-name-for-a-table")
    terminal.launch()
    end = terminal.type("status")
    header, first, second, *_ = end.stdout.splitlines()
    assert header.split() == ["RUN", "JOB", "STATE", "STEP", "AGE", "COST"]
    assert "train (detached)" in first
    assert "SUCCEEDED" in second
    assert "a-job-with-quite-a-long-name-for-a-table" in first
    rows = all_rows(terminal.ledger, terminal.clock.now())
    for width in (80, 90):
        assert max(map(len, runs_table(rows, terminal.clock.now(), width).splitlines())) == width


def test_status_and_the_page_list_the_attempts_at_a_job_as_one_with_their_sum(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH, CRASH, Training())
    terminal.launch("--set", "retry.signal=2")
    third, second, first = (row.run for row in all_rows(terminal.ledger, terminal.clock.now()))
    _, *lines = terminal.type("status").stdout.splitlines()
    assert [line.split()[0] for line in lines[:3]] == [third.id, second.id, first.id]
    assert [line.startswith("  ") for line in lines[:3]] == [False, True, True]
    document = terminal.document("status")["runs"]
    assert {run["chain"] for run in document} == {first.id}
    total = sum(run["usd"] for run in document)
    assert lines[0].endswith(f"${total:.3f}") and not lines[1].endswith(f"${total:.3f}")
    index = Index(
        runs=all_rows(terminal.ledger, terminal.clock.now()), batches=(), query=PageQuery(), made_at=0.0
    )
    page = index_page(index, Frame(refresh_s=None))
    assert page.count("<tr>") == 2 and f"${total:.3f}" in page
    assert all(f'href="run/{run.id}"' in page for run in (first, second, third))


def test_status_without_runs_says_how_to_start_one(terminal: Terminal) -> None:
    assert "vastrun launch" in terminal.type("status").stdout


def test_status_of_a_run_looks_at_its_box(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.clock.sleep(10)
    document = terminal.document("status", "last")
    assert document["box"]["box"] == "running"
    assert document["box"]["step"] == 6
    assert document["run"]["phase"] == "train"
    assert "lease armed" in terminal.type("status", "last").stdout


def test_a_run_is_found_by_the_start_of_its_id(terminal: Terminal) -> None:
    terminal.launch()
    run = only_run(terminal)
    assert terminal.document("status", run.id[:4])["run"]["id"] == run.id
    end = terminal.type("status", "nobody")
    assert end.exit_code == 2
    assert "no run is called 'nobody'" in end.stderr


def test_an_error_tells_its_evidence_once_and_what_to_try(tmp_path: Path) -> None:
    program = "import sys; from vastrun.launcher.cli import main; sys.argv[0] = 'vastrun'; main()"
    (tmp_path / "vastrun").write_text("a file where a folder must be")
    done = subprocess.run(
        [sys.executable, "-c", program, "status"],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: cannot write ") and re.search(r": (File exists|Not a directory)$", error)
    assert hint.startswith("try:   XDG_STATE_HOME=")


def test_why_names_the_first_failing_rank_and_what_to_try(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch()
    said = terminal.type("why", "last").stdout
    assert "rank 1: SIGSEGV at step 4 (backward)" in said
    assert "NO       ranks" in said
    assert "--first-error" in said
    assert "steps    50-train  exit 1    1.0s" in said
    document = terminal.document("why", "last")
    assert document["steps"] == [
        {"step": "50-train", "exit_code": 1, "seconds": 1.0, "stop": "", "last_line": ""}
    ]
    assert document["outcome"]["first_failure"]["signal"] == "SIGSEGV"
    assert document["run"]["cause"] == "signal"


def test_why_names_the_stuck_rank_its_frame_and_its_stacks(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, HANG)
    assert terminal.launch().exit_code == 6
    stack = Path(only_run(terminal).out_dir) / "details" / "stacks" / "rank-1.txt"
    stack.parent.mkdir()
    stack.write_text("Thread 0x1\n")
    said = terminal.type("why", "last").stdout
    assert "rank 1 made no progress for 1m 01s at step 7 (forward)" in said
    assert "model.py:33 forward" in said
    assert str(stack) in said


def test_no_step_is_named_of_a_program_that_told_none(tmp_path: Path) -> None:
    def silent(outcome: Outcome) -> Outcome:
        ended = hang(outcome)
        assert ended.hang is not None
        first = RankEnd(rank=1, exit_code=1)
        return replace(
            ended, hang=replace(ended.hang, step=0, activity=""), first_failure=first, steps_done=0
        )

    terminal = Terminal(tmp_path, replace(HANG, outcome=silent))
    terminal.launch()
    said = terminal.type("why", "last").stdout
    assert "rank 1 made no progress for 1m 01s\n" in said
    assert "rank 1: exit code 1\n" in said
    assert "step 0" not in said


def test_a_success_says_what_it_survived_and_why_tells_each_attempt(tmp_path: Path) -> None:
    def survived(outcome: Outcome) -> Outcome:
        last = StartRecord(
            reason="finished", detail="", world_size=2, steps_done=10, started_at=40.0, ended_at=60.0
        )
        lost = replace(
            last, reason="oom", detail="rank 1 ran out", steps_done=3, started_at=1.0, ended_at=31.0
        )
        return replace(outcome, starts=(lost, last))

    terminal = Terminal(tmp_path, replace(CRASH, outcome=survived, exit_code=0))
    done = terminal.launch()
    assert done.exit_code == 0
    assert "the ranks were restarted once, after: rank 1 ran out" in done.stdout
    said = terminal.type("why", "last").stdout
    assert "1: 30.0s to step 3, 2 ranks, oom: rank 1 ran out" in said


def test_why_shows_a_contradiction_side_by_side(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, replace(CRASH, outcome=lambda o: replace(o, steps_done=3), exit_code=0))
    assert terminal.launch().exit_code == 10
    assert only_run(terminal).cause is Cause.CONTRADICTION
    said = terminal.type("why", "last").stdout
    assert "SAYS SUCCESS" in said
    row = next(
        line for line in said.splitlines() if line.endswith("3 of 10 steps were done") and "2 of 2" in line
    )
    assert row.index("2 of 2 ranks exited 0") < row.index("3 of 10 steps were done")


def test_why_shows_a_missing_proof_as_missing(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, replace(CRASH, outcome=lambda o: replace(o, loss_finite=None), exit_code=0))
    assert terminal.launch().exit_code == 10
    assert "missing  loss" in terminal.type("why", "last").stdout


def test_cost_adds_up_what_runs_cost(terminal: Terminal) -> None:
    terminal.launch()
    terminal.launch()
    document = terminal.document("cost")
    assert document["usd"] == pytest.approx(terminal.market.bill_usd, rel=0.2)
    assert document["usd"] >= terminal.market.bill_usd
    parts = [run["gpu_usd"] + run["storage_usd"] + run["traffic_usd"] for run in document["runs"]]
    assert sum(parts) == pytest.approx(document["usd"])
    header, *_, total = terminal.type("cost").stdout.splitlines()
    assert header.split() == ["RUN", "JOB", "HOURS", "GPU", "STORAGE", "TRAFFIC", "COST"]
    assert total.startswith("total")


def test_the_cost_of_a_run_that_goes_on_grows(terminal: Terminal) -> None:
    terminal.launch("--detach")
    before = terminal.document("cost", "last")["usd"]
    terminal.clock.sleep(100)
    after = terminal.document("cost", "last")["usd"]
    assert after - before == pytest.approx(0.1)
    lines = terminal.type("cost").stdout.splitlines()
    assert "so far" in lines[1]
    assert max(map(len, lines)) <= 80


def test_logs_of_a_rank_that_there_is_not_name_those_that_there_are(terminal: Terminal) -> None:
    terminal.launch()
    end = terminal.type("logs", "last", "--rank", "7")
    assert (end.exit_code, end.stdout) == (2, "")
    assert f"{only_run(terminal).id} has ranks 0 to 1" in end.stderr
    assert terminal.type("logs", "last", "--rank", "1").exit_code == 0


def test_logs_of_a_run_that_nobody_drives_are_fetched(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.clock.sleep(10)
    assert "rank0 step 6" in terminal.type("logs", "last").stdout.splitlines()


def test_logs_of_a_run_that_another_drives_are_read_from_its_outputs(terminal: Terminal) -> None:
    terminal.launch("--detach")
    run = only_run(terminal)
    terminal.ledger.hold(run.id, Driver(who="attic:77:1.0", until=terminal.clock.now() + 600))
    terminal.clock.sleep(10)
    (Path(run.out_dir) / "log.txt").write_text("1800000001.000 rank1 from the other\n")
    assert terminal.type("logs", "last").stdout == "rank1 from the other\n"


def test_logs_can_be_followed_to_the_end(terminal: Terminal) -> None:
    terminal.launch("--detach")
    end = terminal.type("logs", "-f", "last")
    lines = end.stdout.splitlines()
    assert "the training has ended; download its outputs: vastrun attach" in end.stderr
    assert lines[-1] == "rank0 the end"
    assert lines.count("rank0 step 5") == 1


def test_the_first_error_of_a_large_log_is_the_traceback_of_the_rank_that_failed(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch()
    log = Path(only_run(terminal).out_dir) / "log.txt"
    flood = "1800000001.000 rank0 step 1 error: caught\n" * 2000
    with log.open("w") as file:
        file.write("1800000001.000 rank1 Traceback (most recent call last):\n1800000001.000 rank1 old\n")
        for _ in range(LARGE_BYTES // len(flood) + 1):
            file.write(flood)
        file.write("1800000002.000 rank1 Traceback (most recent call last):\n")
        file.write("1800000002.000 rank0 step 2\n1800000002.000 rank1 ValueError: new\n")
    lines = terminal.type("logs", "last", "--first-error").stdout.splitlines()
    assert lines == ["rank1 Traceback (most recent call last):", "rank1 ValueError: new"]


def test_logs_show_only_what_is_asked_for(terminal: Terminal) -> None:
    terminal.launch()
    log = Path(only_run(terminal).out_dir) / "log.txt"
    log.write_text(
        "1799999000.000 rank0 long ago\n"
        "1800000001.000 rank0 step 1\n"
        "1800000002.000 rank1 step 1\n"
        "1800000003.000 rank1 ValueError: bad\x1b[31m\n"
        "1800000004.000 rank0 step 2\n"
        "1800000005.000 rank1 the end\n"
    )

    def logs(*options: str) -> list[str]:
        return terminal.type("logs", "last", *options).stdout.splitlines()

    assert logs("--rank", "0", "--tail", "1") == ["rank0 step 2"]
    assert logs("--since", "10m", "--tail", "9")[:2] == ["rank0 step 1", "rank1 step 1"]
    assert logs("--first-error") == ["rank1 ValueError: bad", "rank1 the end"]
    assert json.loads(logs("--json", "--tail", "1")[0]) == {
        "at": 1800000005.0,
        "source": "rank1",
        "text": "the end",
        "node": None,
    }
    assert "2027-01-15" in logs("--timestamps", "--tail", "1")[0]


def test_pull_fetches_what_there_is_from_a_living_box(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.clock.sleep(30)
    end = terminal.type("pull", "last", "--out", str(terminal.folder / "copy"))
    assert end.exit_code == 0, end.output
    assert (terminal.folder / "copy" / "details" / "outcome.json").is_file()
    assert terminal.machines() == 1


def test_pull_fails_when_a_file_did_not_come_intact(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.clock.sleep(30)
    assert (terminal.type("pull", "last", "--out", str(terminal.folder / "whole"))).exit_code == 0
    files = terminal.market.box(only_run(terminal).instance_id or "").files
    files[layout.OUTCOME] = files[layout.OUTCOME][:-1] + b" "
    end = terminal.type("pull", "last", "--out", str(terminal.folder / "copy"))
    assert (end.exit_code, f"not intact: {layout.OUTCOME}" in end.stdout) == (1, True), end.output


def test_pull_does_not_disturb_whoever_fills_the_same_folder(terminal: Terminal) -> None:
    terminal.launch("--detach")
    run = only_run(terminal)
    terminal.ledger.hold(run.id, Driver(who="attic:77:1.0", until=terminal.clock.now() + 600))
    end = terminal.type("pull", "last")
    assert (end.exit_code, end.stderr.splitlines()[1]) == (1, f"try:   vastrun pull {run.id} --out DIR")
    assert terminal.type("pull", "last", "--out", str(terminal.folder / "copy")).exit_code == 0


def test_pull_without_a_machine_says_where_the_outputs_lie(terminal: Terminal) -> None:
    terminal.launch()
    end = terminal.type("pull", "last")
    assert end.exit_code == 2
    assert only_run(terminal).out_dir in end.stderr


@pytest.mark.parametrize("command", [("ssh", "last"), ("ssh-config", "last"), ("forward", "last", "6006")])
def test_nobody_logs_in_where_there_is_no_machine(terminal: Terminal, command: tuple[str, ...]) -> None:
    terminal.launch()
    end = terminal.type(*command)
    assert end.exit_code == 2
    assert "no longer has a machine" in end.stderr
    assert only_run(terminal).out_dir in end.stderr


def test_a_host_block_needs_a_machine_with_an_ssh_server(terminal: Terminal) -> None:
    terminal.launch("--detach")
    end = terminal.type("ssh-config", "last")
    assert (end.exit_code, end.stdout) == (2, "")
    assert "have no SSH server" in end.stderr
    assert f"vastrun pull {only_run(terminal).id}" in end.stderr


def test_a_host_block_of_a_node_that_the_run_does_not_have_is_refused(terminal: Terminal) -> None:
    terminal.launch("--detach")
    end = terminal.type("ssh-config", "last", "--node", "1")
    assert end.exit_code == 2
    assert "--node 1" in end.stderr and "has one node, 0" in end.stderr


def test_a_port_that_is_none_is_refused(terminal: Terminal) -> None:
    terminal.launch("--detach")
    assert terminal.type("forward", "last", "70000").exit_code == 2


def test_reap_leaves_machines_of_open_runs_alone(terminal: Terminal) -> None:
    terminal.launch("--detach")
    assert terminal.type("reap", "-y").exit_code == 0
    assert terminal.machines() == 1


def test_reap_ends_what_no_open_run_claims_once_confirmed(terminal: Terminal) -> None:
    forsaken(terminal)
    assert terminal.type("reap", keys="y\n").exit_code == 2
    assert terminal.machines() == 1
    document = terminal.document("reap", "--dry-run")
    assert [machine["id"] for machine in document["machines"]] == ["1"]
    assert terminal.machines() == 1
    end = terminal.type("reap", "--yes")
    assert end.exit_code == 0
    assert "1 destroyed" in end.stdout
    assert terminal.machines() == 0


def forsaken(terminal: Terminal) -> None:
    """A machine stays although its run has ended."""
    terminal.launch("--detach")
    run = only_run(terminal)
    terminal.ledger.hold(run.id, Driver(who="desk:1:1.0", until=terminal.clock.now() + 600))
    terminal.ledger.save(replace(run, phase=Phase.ENDED), who="desk:1:1.0")


def test_status_lists_the_newest_runs_and_all_of_them_with_who_started_them_where_that_is_asked(
    terminal: Terminal,
) -> None:
    terminal.launch("--detach")
    first = only_run(terminal)
    for number in range(23):
        name = f"ended-{number:02d}"
        run = replace(
            first, id=name, phase=Phase.ENDED, created_at=first.created_at - number, started_by="ada"
        )
        terminal.ledger.add(run)

    lines = terminal.type("status").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:22]] == [first.id, *(f"ended-{n:02d}" for n in range(20))]
    assert "3 more that have ended: vastrun status --all" in lines
    assert terminal.document("status")["more"] == 3

    header, *rows = terminal.type("status", "--all").stdout.splitlines()
    assert header.split()[:3] == ["RUN", "JOB", "USER"]
    assert sum("ada" in line for line in rows) == 23
    assert {run["started_by"] for run in terminal.document("status", "--all")["runs"]} == {"ada", ""}
