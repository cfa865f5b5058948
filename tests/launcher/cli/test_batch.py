"""`batch` as a user types it, on a fake market; its hints name only options that the command has."""

import csv
import io
import re
import signal
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.desk import FILE, Desk
from tests.launcher.terminal import CRASH, JOB
from vastrun.launcher.bundle.checkout import worktree
from vastrun.launcher.cli.batch_submit import hint_for_batch, hint_for_sweep
from vastrun.launcher.core import Driver, UserRequest
from vastrun.launcher.ledger.sqlite import SqliteLedger


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """With a batch that has ended, for all tests that only look at it."""
    desk = Desk(tmp_path_factory.mktemp("ended"))
    assert desk.submit()[0] == 0
    return desk


def test_a_batch_runs_every_point_and_ends_with_its_table(desk: Desk) -> None:
    code, out, err = desk.submit()
    assert code == 0, err
    assert "6 of 6 points are new" in err and "6 SUCCEEDED loss 0.1: seed=3 batch=16" in err
    lines = out.splitlines()
    assert lines[0].split() == ["#", "VALUES", "VERDICT", "LOSS", "STEPS", "TIME", "COST", "RUN"]
    assert len([line for line in lines if "SUCCEEDED" in line]) == 6
    assert desk.machines() == 0


@pytest.mark.slow
def test_outputs_of_a_batch_in_the_folder_of_the_code_are_never_shipped_with_it(desk: Desk) -> None:
    (desk.folder / "train.py").touch()
    code, _, err = desk.submit()
    assert code == 0, err
    # Also not those that come to lie there while another point is packed.
    (desk.folder / "out" / "0007-new").mkdir()
    (desk.folder / "out" / "0007-new" / "part").touch()
    assert "train.py" in worktree(str(desk.folder)).paths
    assert [path for path in worktree(str(desk.folder)).paths if path.startswith("out/")] == []


def test_what_a_batch_cost_is_added_up_under_its_name(ended: Desk) -> None:
    (group,) = ended.document("cost", "--by", "batch")["groups"]
    assert (group["key"], group["runs"], group["finished"]) == ("widths", 6, 6)
    assert group["usd_per_run"] == pytest.approx(group["usd"] / 6)


def test_a_dry_run_says_what_it_may_cost_and_rents_nothing(desk: Desk) -> None:
    code, out, _ = desk.submit("--dry-run")
    assert code == 0
    assert "6 points, 3 at once" in out
    assert "seed=1 batch=8" in out and "… and 1 more" in out
    assert "$18.00 for all, $3.00 for one point" in out
    assert not desk.ledger.runs() and not desk.ledger.batches.all()
    plan = desk.document("batch", "submit", str(desk.file), "--dry-run")
    assert (plan["at_most_usd"], plan["least_budget_usd"], len(plan["points"])) == (18.0, 3.0, 6)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ("{parallel: 3}", "limits.usd: missing; machines cost money here"),
        ("{usd: 2}", "limits.usd: $2 is less than one run may cost, $3.00"),
    ],
)
def test_a_missing_or_small_budget_is_refused_with_its_number(desk: Desk, limits: str, told: str) -> None:
    desk.file.write_text(FILE.replace("{usd: 20, parallel: 3}", limits))
    code, _, err = desk.submit()
    assert code == 2
    assert told in err and "batch.yaml" in err and "try:" in err
    assert not desk.ledger.batches.all()


def test_all_faults_of_a_batch_file_are_told_before_anything_is_rented(desk: Desk) -> None:
    desk.file.write_text(FILE.replace("train.seed", "train.sed").replace("usd: 20", "usd: -1"))
    code, _, err = desk.submit()
    assert code == 2
    assert "batch.yaml:4: limits.usd: expected a number above 0, got -1" in err
    desk.file.write_text(FILE.replace("train.seed", "train.sed"))
    assert "train.sed: unknown key; did you mean seed?" in desk.submit()[2]
    assert desk.market.rentals == 0


def test_without_a_terminal_a_batch_that_costs_money_wants_a_yes(desk: Desk) -> None:
    result = desk.type("batch", "submit", str(desk.file))
    assert result.exit_code == 2
    assert "run 6 points on fake for at most $20.00: this needs confirmation" in result.stderr


def test_the_same_file_again_runs_nothing_twice(desk: Desk) -> None:
    desk.submit()
    code, _, err = desk.submit()
    assert (code, desk.market.rentals) == (0, 6)
    assert "0 of 6 points are new" in err


def test_a_point_that_failed_makes_the_exit_code_5_and_is_run_again_by_retry(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Training(), CRASH, Training())
    assert desk.submit()[0] == 5
    status = desk.type("batch", "status", "widths").stdout
    assert "FAILED (signal)" in status and "6/6 ended, 1 failed" in status
    again = desk.type("batch", "retry", "widths", "--cause", "signal")
    assert again.exit_code == 0 and "retrying 1 point of widths" in again.stderr
    assert desk.type("batch", "retry", "widths").exit_code == 2


def test_a_point_that_was_tried_again_by_its_job_is_run_again_in_a_folder_of_its_own(tmp_path: Path) -> None:
    desk = Desk(tmp_path, CRASH, CRASH, Training())
    desk.job.write_text(JOB + "retry: {signal: 1}\n")
    desk.file.write_text(FILE.replace("[1, 2, 3]", "[1]").replace("[8, 16]", "[8]"))
    assert desk.submit()[0] == 5
    again = desk.type("batch", "retry", "widths")
    assert again.exit_code == 0, again.stderr
    assert len({run.out_dir for run in desk.ledger.runs()}) == 3


def test_a_limit_that_ends_a_batch_is_told_with_what_goes_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path, CRASH)
    code, _, err = desk.submit()
    assert code == 9
    assert "of 6 points were not started: limits.stop.same_cause" in err
    assert "points failed with the same cause, signal" in err
    assert "try:   vastrun batch resume widths" in err


def test_a_stop_of_a_batch_that_nobody_drives_ends_its_machines_and_starts_no_other_point(desk: Desk) -> None:
    desk.time.happens.append((desk.time.now() + 8.0, lambda: signal.raise_signal(signal.SIGHUP)))
    assert desk.submit()[0] == 0 and desk.machines() == 3
    stop = desk.type("batch", "stop", "widths")
    assert stop.exit_code == 0, stop.stderr
    assert "asked 3 runs of widths to stop" in stop.stderr and "3 of 6 points were not started" in stop.stderr
    assert desk.machines() == 0 and desk.market.rentals == 3
    assert desk.type("batch", "stop", "widths").exit_code == 0


def test_a_stop_leaves_the_end_to_a_launcher_that_comes_at_the_same_moment(desk: Desk) -> None:
    seen = iter([False])  # it is not there yet when it is looked for, and then it is
    desk.ledger = SqliteLedger(Path(":memory:"), now=desk.time.now, alive=lambda who: next(seen, True))
    desk.time.happens.append((desk.time.now() + 8.0, lambda: signal.raise_signal(signal.SIGHUP)))
    assert desk.submit()[0] == 0
    desk.ledger.batches.hold("widths", Driver(who="desk:2:2.0", until=desk.time.now() + 60.0))

    stop = desk.type("batch", "stop", "widths")

    assert stop.exit_code == 0, stop.stderr
    assert "driven by another launcher" in stop.stderr
    assert desk.ledger.batches.get("widths").request is UserRequest.STOP


@pytest.mark.slow
def test_a_machine_that_could_not_be_given_back_is_told_and_makes_the_exit_code_11(desk: Desk) -> None:
    desk.market.deaf = True
    code, _, err = desk.submit()
    assert code == 11 and desk.machines() > 0
    assert "open runs: a machine may still be rented" in err
    assert "vastrun batch resume widths" in err
    desk.market.deaf = False
    assert desk.type("batch", "resume", "widths").exit_code == 0
    assert desk.machines() == 0


def test_results_are_a_table_a_document_and_lines_of_csv(ended: Desk) -> None:
    document = ended.document("batch", "results", "widths")
    assert [point["verdict"] for point in document["points"]] == ["SUCCEEDED"] * 6
    text = ended.type("batch", "results", "widths", "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {(row["train.seed"], row["train.batch"]) for row in rows} == {
        (s, b) for s in "123" for b in ("8", "16")
    }
    assert ended.type("batch", "results", "widths", "--csv", "--json").exit_code == 2


def test_batches_are_listed_and_a_name_that_there_is_not_is_told(desk: Desk) -> None:
    assert desk.type("batch", "status").stdout == "no batches yet\n"
    desk.submit()
    line = desk.type("batch", "status").stdout.splitlines()[1].split()
    assert line[:5] == ["widths", "fake", "6/6", "0", "0"] and line[-1] == "ended"
    (batch,) = desk.document("batch", "status")["batches"]
    assert (batch["succeeded"], batch["budget_usd"]) == (6, 20.0)
    unknown = desk.type("batch", "results", "depths")
    assert unknown.exit_code == 2 and "no batch is called 'depths'" in unknown.stderr


def test_a_folder_with_other_files_is_refused(desk: Desk) -> None:
    (desk.folder / "out").mkdir()
    (desk.folder / "out" / "thesis.tex").write_text("x")
    code, _, err = desk.submit()
    assert code == 2 and "holds other files" in err


def test_a_batch_that_is_not_there_is_answered_with_the_one_that_was_meant(ended: Desk) -> None:
    for name in ("wid", "width", "withs"):
        results, report = ended.type("batch", "results", name), ended.type("report", name)
        assert (results.exit_code, report.exit_code) == (2, 2)
        assert f"no batch is called '{name}'; did you mean widths?" in results.stderr
        assert f"no run or batch is called '{name}'; did you mean widths?" in report.stderr


def test_a_batch_out_of_budget_names_the_one_that_works_and_no_command_that_cannot(desk: Desk) -> None:
    desk.file.write_text(FILE.replace("{usd: 20, parallel: 3}", "{usd: 3.03, parallel: 1}"))
    code, _, err = desk.submit()
    assert code == 9 and "points were not started: batch widths:" in err
    assert "batch resume" not in err and "batch resume" not in desk.type("batch", "status").stdout
    while code:
        found = re.findall(r"limits: {usd: ([0-9.]+)} in the batch file", err)
        desk.file.write_text(FILE.replace("{usd: 20, parallel: 3}", f"{{usd: {found[-1]}, parallel: 1}}"))
        before = len(desk.ledger.runs())
        code, _, err = desk.submit()
        assert len(desk.ledger.runs()) > before, err


def test_a_free_batch_needs_no_budget_and_no_yes(tmp_path: Path) -> None:
    desk = Desk(tmp_path, usd_per_hour=0.0)
    desk.file.write_text(FILE.replace("usd: 20, ", ""))
    result = desk.type("batch", "submit", str(desk.file), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.stderr


def test_last_is_the_newest_batch(desk: Desk) -> None:
    for words in (("results", "last"), ("status", "last"), ("stop", "last")):
        end = desk.type("batch", *words)
        assert end.exit_code == 2
        assert "there are no batches yet" in end.stderr
    desk.submit()
    assert desk.type("batch", "results", "last").stdout == desk.type("batch", "results", "widths").stdout
    assert "widths" in desk.type("batch", "status", "last").stdout
    assert desk.type("batch", "stop", "last").exit_code == 0
    assert desk.document("batch", "results", "last")["batch"] == "widths"


def test_why_of_a_batch_tells_the_causes_of_its_failed_points(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Training(), CRASH)
    desk.file.write_text(FILE.replace("parallel: 3", "parallel: 1"))
    desk.submit()
    end = desk.type("why", "widths")
    assert end.exit_code == 0, end.output
    assert (
        "3 FAILED, 2 waiting, 1 SUCCEEDED" in end.stdout and "limits.stop.same_cause: 3 points" in end.stdout
    )
    assert "signal" in end.stdout and "3 x: a process was killed: rank 1 was killed by SIGSEGV" in end.stdout
    newest = desk.ledger.runs()[0].id
    assert f"vastrun why {newest}" in end.stdout and "vastrun batch retry widths" in end.stdout
    assert desk.type("why", newest).exit_code == 0
    document = desk.document("why", "widths")
    assert document["points"] == {"FAILED": 3, "waiting": 2, "SUCCEEDED": 1}
    (cause,) = document["causes"]
    assert (cause["cause"], cause["points"], cause["run"]) == ("signal", 3, newest)
    assert newest in cause["runs"] and "SIGSEGV" in cause["detail"]
    assert document["next"] == "vastrun batch retry widths, once the cause is fixed"
    assert "no run is called 'nosuch'" in desk.type("why", "nosuch").stderr


def test_a_command_for_runs_says_that_a_name_is_a_batch(ended: Desk) -> None:
    end = ended.type("stop", "widths")
    assert end.exit_code == 2
    assert "'widths' is a batch, not a run" in end.stderr and "vastrun batch status widths" in end.stderr


MISSING = "limits: {usd: 7} in the batch file, or --usd"


@pytest.mark.parametrize(
    ("hint", "batch", "sweep"),
    [
        (MISSING, "limits: {usd: 7} in the batch file", "--usd 7"),
        (
            "limits: {usd: 3.00} or more in the batch file, or --usd; or lower limits in the job",
            "limits: {usd: 3.00} or more in the batch file; or lower limits in the job",
            "--usd 3.00 or more; or lower limits in the job",
        ),
        (
            "limits: {usd: USD} in the batch file, or --usd USD, and submit it again",
            "limits: {usd: USD} in the batch file, and submit it again",
            "--usd USD, and submit it again",
        ),
        (
            "--set limits.hours=0.5, or limits.hours in the job file",
            "limits.hours: 0.5 in the job file",
            "--set limits.hours=0.5, or limits.hours in the job file",
        ),
        (
            "--set limits.usd=5, or set limits.usd or limits.usd_per_hour in the job file",
            "limits.usd: 5 in the job file",
            "--set limits.usd=5, or set limits.usd or limits.usd_per_hour in the job file",
        ),
        (
            "--set limits.usd_per_hour=0.40, or relax resources:",
            "limits.usd_per_hour: 0.40 in the job file, or relax resources:",
            "--set limits.usd_per_hour=0.40, or relax resources:",
        ),
        (
            "--provider vast, or another name: in the batch file",
            "--provider vast, or another name: in the batch file",
            "--provider vast, or another --name",
        ),
        ("", "", ""),
    ],
)
def test_a_hint_names_only_options_that_the_command_has(hint: str, batch: str, sweep: str) -> None:
    assert (hint_for_batch(hint), hint_for_sweep(hint)) == (batch, sweep)
