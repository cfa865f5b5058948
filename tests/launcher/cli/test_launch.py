"""`launch`, from its job file to its verdict."""

import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import CRASH, JOB, Terminal
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Cause, Offer
from vastrun.launcher.core.errors import AuthError, NoOfferError

PROGRAM = """\
name: demo
resources: {gpus: 2}
limits: {hours: 1, usd: 3}
command: python train.py
success: {exit_code: 0}
"""


def test_a_launch_tells_its_end_on_stdout_and_its_steps_on_stderr(terminal: Terminal) -> None:
    end = terminal.launch()
    assert end.exit_code == 0, end.output
    assert "SUCCEEDED" in end.stdout
    assert "2 of 2 ranks exited 0" in end.stdout
    assert "at $3.60/h" in end.stdout
    assert str(terminal.folder / "out") in end.stdout
    assert terminal.machines() == 0
    assert "the lease is armed" in end.stderr
    assert "confirmed twice" in end.stderr
    assert "lease is armed" not in end.stdout


def test_a_launch_with_json_prints_one_document_and_nothing_else(terminal: Terminal) -> None:
    document = json.loads(terminal.launch("--json").stdout)
    assert document["schema_version"] == 1
    assert document["run"]["verdict"] == "SUCCEEDED"
    assert document["exit_code"] == 0
    assert document["run"]["usd"] > 0


def test_money_is_not_spent_when_there_is_nobody_to_ask(terminal: Terminal) -> None:
    end = terminal.type("launch", str(terminal.job), keys="y\n")
    assert end.exit_code == 2
    assert "-y" in end.stderr
    assert terminal.market.bill_usd == 0
    assert not terminal.ledger.runs()


def test_a_free_provider_needs_no_consent(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, usd_per_hour=0.0)
    end = terminal.type("launch", str(terminal.job), "--out", str(tmp_path / "out"))
    assert end.exit_code == 0, end.output


def test_a_dry_run_shows_price_and_worst_case_and_leaves_nothing(terminal: Terminal) -> None:
    end = terminal.launch("--dry-run")
    assert end.exit_code == 0
    assert "at most $3.00" in end.stdout
    assert not terminal.ledger.runs()
    assert terminal.market.most_at_once == 0


def test_every_fault_of_a_job_file_is_told_before_anything_happens(terminal: Terminal) -> None:
    terminal.job.write_text("name: demo\nbogus: 1\nlimits: {usd: ten}\ntrain: {steps: 10}\n")
    end = terminal.launch()
    assert end.exit_code == 2
    assert "bogus" in end.stderr
    assert "limits.usd" in end.stderr
    assert end.stderr.count("error:") == 2
    assert not terminal.ledger.runs()


def test_a_job_can_be_changed_and_named_on_the_command_line(terminal: Terminal) -> None:
    terminal.launch("--set", "limits.hours=0.5", "--set", "name=other")
    (run,) = terminal.ledger.runs()
    assert run.job == "other"
    assert read_job(run.spec_json).limits.hours == 0.5


def test_a_job_has_the_tags_of_its_file_and_of_the_command_line(terminal: Terminal) -> None:
    terminal.job.write_text(JOB + "tags: baseline\n")
    assert terminal.launch("--tag", "lr 1e-3", "--tag", "baseline").exit_code == 0
    (run,) = terminal.ledger.runs()
    assert read_job(run.spec_json).tags == ("baseline", "lr 1e-3")


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (["a,b"], "error: --tag: expected up to 63 letters, digits, spaces and _-.:/=+@"),
        ([f"t{n}" for n in range(21)], "error: --tag: expected at most 20 tags, got 21"),
    ],
)
def test_invalid_tags_are_refused_before_anything(terminal: Terminal, tags: list[str], said: str) -> None:
    end = terminal.launch(*(word for tag in tags for word in ("--tag", tag)))
    assert (end.exit_code, terminal.ledger.runs()) == (2, [])
    assert said in end.stderr


@pytest.mark.slow
def test_a_job_can_be_given_a_deadline_on_the_command_line(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Training(seconds=90000))
    by = datetime.fromtimestamp(terminal.clock.now() + 1200).strftime("%Y-%m-%d %H:%M")
    end = terminal.launch("--by", by, "--set", "limits.deadline=2001-01-01 08:00")
    assert end.exit_code == 9, end.output
    assert f"not known whether it finishes by {by}; it is stopped then" in end.stderr
    (run,) = terminal.ledger.runs()
    assert run.cause is Cause.TIME_LIMIT
    assert terminal.clock.now() <= datetime.strptime(by, "%Y-%m-%d %H:%M").timestamp()
    stored = read_job(run.spec_json).limits.deadline
    assert stored is not None
    assert datetime.fromisoformat(stored).timestamp() == datetime.strptime(by, "%Y-%m-%d %H:%M").timestamp()


@pytest.mark.parametrize("command", ["plan", "launch"])
def test_a_deadline_that_is_over_is_refused_before_renting(terminal: Terminal, command: str) -> None:
    end = terminal.type(command, str(terminal.job), "--by", "2001-01-01 08:00")
    assert end.exit_code == 2
    assert "limits.deadline: 2001-01-01 08:00 is in the past" in end.stderr
    assert not terminal.ledger.runs()


def test_a_crash_sets_its_exit_code_and_names_rank_and_signal(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    end = terminal.launch()
    assert end.exit_code == 5
    assert "FAILED: a process was killed: rank 1 was killed by SIGSEGV" in end.stdout
    assert terminal.machines() == 0


def test_until_the_training_begins_the_log_does_not_run_ahead_of_what_is_told(tmp_path: Path) -> None:
    quick = Training(seconds=20.0, steps=80)
    shown = Terminal(tmp_path, quick).launch().output
    # Of the first look; what came after it is shown once the next one has told of it.
    assert shown[: shown.index("training: step")].count("rank0 step") == 1, shown


def test_a_step_of_the_box_is_shown_between_the_line_before_and_its_own_first(tmp_path: Path) -> None:
    training = Training(before_s={"30-unpack": 4.0, "40-data": 5.0})
    shown = Terminal(tmp_path, training).launch().output.splitlines()
    told = [line.split("  ")[-1].strip() for line in shown]
    assert [line for line in told if "30-" in line or "40-" in line or "50-" in line] == [
        "30-unpack",
        "30-unpack begins",
        "30-unpack done",
        "40-data",
        "40-data begins",
        "40-data done",
        "50-train",
        "50-train begins",
    ]


def test_detached_a_program_without_heartbeats_is_left_once_its_ranks_are_old(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Training(seconds=300.0, imports_s=20.0, beats=False))
    terminal.job.write_text(PROGRAM)
    end = terminal.launch("--detach")
    assert end.exit_code == 0, end.output
    assert terminal.ledger.events(terminal.ledger.runs()[0].id)[-1].text == "the program runs"
    assert "step" not in end.stdout
    assert terminal.machines() == 1


def test_program_whose_success_names_a_step_shows_how_far_it_is_and_how_long_it_takes(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Training(seconds=300.0, steps=60))
    terminal.job.write_text(PROGRAM.replace("exit_code: 0", "steps: 60"))
    said = terminal.launch().stderr
    assert "training: step 0 of 60" in said
    assert re.search(r"train +step \d+/60 \(\d+%\)  loss 0.5  ETA [1-4]m", said), said


@pytest.mark.parametrize(("presses", "said"), [(1, "stopping"), (2, "vastrun stop last --now")])
def test_ctrl_c_without_terminal_stops_and_collects(presses: int, said: str, terminal: Terminal) -> None:
    for _ in range(presses):
        terminal.press(after_s=5)
    end = terminal.launch()
    assert end.exit_code == 3
    assert said in end.stderr
    assert (terminal.folder / "out" / "details" / "outcome.json").is_file()
    assert terminal.machines() == 0


def test_a_run_is_tried_again_as_often_as_its_cause_may_be(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH, CRASH, Training())
    end = terminal.launch("--set", "retry.signal=2")
    last, second, first = terminal.ledger.runs()
    assert end.exit_code == 0, end.output
    assert [run.cause for run in (first, second, last)] == [Cause.SIGNAL, Cause.SIGNAL, None]
    assert [first.parent, second.parent, last.parent] == [None, first.id, second.id]
    assert "for all 3 attempts" in end.stdout
    assert len({run.out_dir for run in (first, second, last)}) == 3


def test_a_run_is_not_tried_again_for_another_cause_or_too_often(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    assert terminal.launch("--set", "retry.host=3").exit_code == 5
    assert len(terminal.ledger.runs()) == 1
    assert terminal.launch("--set", "retry.signal=1").exit_code == 5
    assert len(terminal.ledger.runs()) == 3


def test_a_run_that_ended_long_ago_is_not_tried_again_by_looking_at_it(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch("--set", "retry.signal=1")
    first = terminal.ledger.runs()[-1]
    for command in ("wait", "attach"):
        assert terminal.type(command, first.id).exit_code == 5
    assert len(terminal.ledger.runs()) == 2


def test_all_attempts_share_one_limit_on_money(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch("--set", "retry.signal=1")
    second, first = terminal.ledger.runs()
    left = read_job(second.spec_json).limits.usd
    assert left is not None
    assert first.released_at is not None
    assert first.rented_at is not None
    assert left == pytest.approx(3.0 - (first.released_at - first.rented_at) * 0.001)


def test_a_run_cannot_continue_from_one_without_a_checkpoint(terminal: Terminal) -> None:
    terminal.launch()
    shutil.rmtree(terminal.folder / "out" / "checkpoints")
    end = terminal.launch("--from", "last")
    assert end.exit_code == 2
    assert "left no checkpoint" in end.stderr
    assert "pull" not in end.stderr
    assert len(terminal.ledger.runs()) == 1


def test_the_time_to_answer_the_question_is_none_of_the_run_s(terminal: Terminal) -> None:
    class Hesitant(io.BytesIO):
        def isatty(self) -> bool:
            return True

        def read1(self, size: int | None = -1, /) -> bytes:
            terminal.clock.sleep(3600)
            return super().read1(-1 if size is None else size)

    end = terminal.type(
        "launch", str(terminal.job), "--out", str(terminal.folder / "out"), keys=Hesitant(b"y\n")
    )
    assert end.exit_code == 0, end.output
    assert "1h 00m" not in end.stderr


def test_a_run_continues_from_the_checkpoint_of_another(terminal: Terminal) -> None:
    terminal.launch()
    (first,) = terminal.ledger.runs()
    assert terminal.launch("--from", first.id[:6]).exit_code == 0
    assert terminal.ledger.runs()[0].parent == first.id


def test_a_run_continues_with_its_own_job_where_none_is_named(terminal: Terminal) -> None:
    terminal.launch("--set", "limits.usd=3", "--tag", "lr")
    terminal.job.unlink()
    end = terminal.type("launch", "--from", "last", "-y", "--set", "limits.hours=2", "--set", "name=longer")
    assert end.exit_code == 0, end.output
    second, first = terminal.ledger.runs()
    assert f"using the job of {first.id}: {first.job}" in end.stderr
    assert (second.parent, second.job) == (first.id, "longer")
    job, former = read_job(second.spec_json), read_job(first.spec_json)
    assert replace(job, name=former.name, limits=former.limits) == former
    assert (job.limits.usd, job.limits.hours) == (3.0, 2.0)


def test_its_files_of_this_computer_are_those_that_are_there_now(terminal: Terminal) -> None:
    corpus = terminal.folder / "corpus.txt"
    corpus.write_text("words\n")
    terminal.job.write_text(f"{terminal.job.read_text()}data: [{{path: {corpus}}}]\n")
    assert terminal.launch().exit_code == 0
    corpus.write_text("more words\n")
    end = terminal.type("launch", "--from", "last", "-y")
    assert end.exit_code == 0, end.output
    sizes = [read_job(run.spec_json).data[0].size for run in terminal.ledger.runs()]
    assert sizes == [11, 6]


def test_it_has_the_limits_that_were_set_before_its_attempts_shared_them(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch("--set", "retry.signal=1")
    terminal.type("launch", "--from", "last", "-y", "--set", "retry.signal=0")
    third, second, first = terminal.ledger.runs()
    usd = [read_job(run.spec_json).limits.usd or 0.0 for run in (first, second, third)]
    assert usd[1] < usd[0] == usd[2]


def test_what_lies_where_it_is_typed_has_nothing_to_do_with_the_job_of_a_run(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.job.write_text(PROGRAM)
    terminal.launch()
    elsewhere = terminal.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "train.py").touch()
    monkeypatch.chdir(elsewhere)
    end = terminal.type("launch", "--from", "last", "-y")
    assert len(terminal.ledger.runs()) == 2, end.output
    assert "has no code: nothing is uploaded besides the command" in end.stderr


def test_a_fault_in_what_is_changed_of_a_run_s_job_names_the_run(terminal: Terminal) -> None:
    terminal.launch()
    (first,) = terminal.ledger.runs()
    end = terminal.type("launch", "--from", "last", "-y", "--set", "limits.hour=2")
    assert end.exit_code == 2
    assert f"the job of {first.id}" in end.stderr
    assert "limits.hour" in end.stderr
    assert len(terminal.ledger.runs()) == 1


def test_a_traceback_is_shown_with_debug_only(terminal: Terminal) -> None:
    terminal.job.write_text("name: [")
    plain = terminal.launch()
    assert "Traceback" not in plain.stderr
    debug = terminal.type("--debug", "launch", str(terminal.job))
    assert "Traceback" in debug.stderr
    assert plain.exit_code == debug.exit_code == 2


@pytest.mark.parametrize(
    ("trouble", "code"),
    [(AuthError("no such key"), 4), (NoOfferError("nothing fits"), 8), (KeyboardInterrupt(), 130)],
    ids=["key", "no offer", "Ctrl-C"],
)
def test_what_ends_a_launch_before_anything_is_rented_has_its_exit_code(
    terminal: Terminal, trouble: BaseException, code: int
) -> None:
    def closed(offers: Sequence[Offer]) -> Sequence[Offer]:
        raise trouble

    terminal.market.change = closed
    end = terminal.launch()
    assert end.exit_code == code
    assert "Traceback" not in end.output
    assert not terminal.ledger.runs()


def test_a_packaged_example_needs_no_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    end = Terminal(tmp_path).type("plan", "quickstart.yaml", "--set", "limits.usd=1")
    assert end.exit_code == 0, end.output
    assert "quickstart" in end.stdout
    assert "using vastrun's example" in end.stderr
