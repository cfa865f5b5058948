"""Whether a run is tried again, with how much money, and from which checkpoint."""

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.jobs import train_job
from tests.launcher.terminal import CRASH, Terminal
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher.commands import chains
from vastrun.launcher.commands.chains import chain_of, is_retry_missing, next_attempt, origin_of
from vastrun.launcher.commands.report import report_of
from vastrun.launcher.config import dump_job, read_job
from vastrun.launcher.core import Cause, Origin, Phase, Run
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.job import Checkpoints, JobSpec, Limits
from vastrun.launcher.ledger.sqlite import SqliteLedger

NOW = 10_000.0
PUSHES = Checkpoints(push="s3://models/demo/")
JOB = train_job(retry={"host": 1, "signal": 2}, limits=Limits(hours=1.0, usd=3.0), checkpoints=PUSHES)
RUN = a_run(
    id="one",
    spec_json=dump_job(JOB),
    provider="fake",
    phase=Phase.ENDED,
    usd_per_hour=3.6,
    rented_at=NOW - 1000,
    released_at=NOW,
    cause=Cause.HOST,
)


def tried_again(spec: JobSpec, *chain: Run) -> bool:
    return isinstance(next_attempt(spec, chain, NOW, cost_usd(chain[-1], NOW)), JobSpec)


@pytest.mark.parametrize(
    ("last", "again"),
    [
        (RUN, True),
        (replace(RUN, cause=None), False),
        (replace(RUN, cause=Cause.STOPPED), False),
        (replace(RUN, phase=Phase.DESTROY), False),
    ],
    ids=["a cause with tries", "a success", "another cause", "not destroyed"],
)
def test_only_an_ended_run_with_tries_left_is_tried_again(last: Run, again: bool) -> None:
    assert tried_again(JOB, last) is again


@pytest.mark.parametrize(("tail_s", "again"), [(0.0, True), (300.0, False)])
def test_what_a_bill_may_have_more_is_not_spent_on_another_attempt(
    tail_s: float, again: bool, ledger: SqliteLedger
) -> None:
    last = replace(RUN, rented_at=NOW - 2900, offer=rtx_4090(bill_tail_s=tail_s))  # of 3000 s of its price
    ledger.add(last)
    assert is_retry_missing(ledger, last, NOW) is again


def test_tries_are_counted_by_cause_along_the_chain() -> None:
    crashed = replace(RUN, cause=Cause.SIGNAL)
    assert not tried_again(JOB, RUN, RUN)
    assert tried_again(JOB, RUN, crashed, crashed)
    assert not tried_again(JOB, RUN, crashed, crashed, crashed)


def test_a_machine_that_was_never_ready_is_followed_by_three_others_without_any_retry() -> None:
    spec = replace(JOB, retry={})
    for cause in (Cause.HOST, Cause.LOST):
        bad = replace(RUN, cause=cause, failed_in=Phase.BOOT, released_at=NOW - 900)
        assert tried_again(spec, *[bad] * 3)
        assert not tried_again(spec, *[bad] * 4)


def test_machines_that_were_never_ready_use_up_no_retry() -> None:
    bad = replace(RUN, failed_in=Phase.BOOT)
    broken = replace(RUN, failed_in=Phase.TRAIN)
    assert tried_again(JOB, bad, bad, broken)
    assert not tried_again(JOB, broken, bad, broken)


@pytest.mark.parametrize(
    "cause", [Cause.USER_ERROR, Cause.PROVIDER, Cause.STOPPED, Cause.PRUNED, Cause.NO_OFFER]
)
def test_what_another_machine_cannot_mend_is_not_tried_on_one(cause: Cause) -> None:
    assert not tried_again(JOB, replace(RUN, cause=cause, failed_in=Phase.BOOT))


def test_another_attempt_has_only_what_is_left_of_the_money() -> None:
    spec = next_attempt(JOB, [RUN], NOW, cost_usd(RUN, NOW))
    assert isinstance(spec, JobSpec)
    assert spec.limits.usd == pytest.approx(2.0)
    assert spec.train == JOB.train


def test_without_money_left_there_is_no_other_attempt() -> None:
    assert not tried_again(replace(JOB, limits=Limits(usd=1.0)), RUN)
    assert tried_again(replace(JOB, limits=Limits(usd=None)), RUN)


def test_without_time_until_the_deadline_there_is_no_other_attempt() -> None:
    def due(left_s: float) -> JobSpec:
        deadline = datetime.fromtimestamp(NOW + left_s, tz=UTC).isoformat()
        return replace(JOB, limits=replace(JOB.limits, deadline=deadline))

    assert tried_again(due(3600.0), RUN)
    spent_usd = cost_usd(RUN, NOW)
    shortfall = next_attempt(due(60.0), [RUN], NOW, spent_usd)
    assert isinstance(shortfall, str)
    assert "60 s are left until limits.deadline" in shortfall
    assert next_attempt(due(60.0), [replace(RUN, cause=None)], NOW, spent_usd) == "", "none is due"
    again = next_attempt(due(3600.0), [RUN], NOW, spent_usd)
    assert isinstance(again, JobSpec)
    assert again.limits.deadline == due(3600.0).limits.deadline


@pytest.fixture
def ledger(tmp_path: Path) -> SqliteLedger:
    """Three runs: `a` was stopped, `b` continues it and loses its host, `c` tries `b` again."""
    ledger = SqliteLedger(tmp_path / "ledger.db", now=lambda: NOW, alive=lambda _: True)
    for run_id, parent, cause in [("a", None, Cause.STOPPED), ("b", "a", Cause.HOST), ("c", "b", None)]:
        ledger.add(replace(RUN, id=run_id, parent=parent, cause=cause, out_dir=str(tmp_path / run_id)))
    return ledger


def test_a_chain_ends_where_a_user_not_a_retry_continued(ledger: SqliteLedger) -> None:
    assert [run.id for run in chain_of(ledger, ledger.get("c"))] == ["b", "c"]


def test_a_run_continues_from_what_came_home_of_the_nearest_run_and_from_what_was_pushed_since(
    ledger: SqliteLedger, tmp_path: Path
) -> None:
    pushed = ("s3://models/demo/b", "s3://models/demo/a")
    assert origin_of(ledger, ledger.get("a"), "") == Origin()
    assert origin_of(ledger, ledger.get("c"), "") == Origin(pushed=pushed, continues=("b", "a"))
    for run_id, since in (("a", pushed), ("b", pushed[:1])):
        folder = tmp_path / run_id / "checkpoints"
        folder.mkdir(parents=True)
        (folder / "latest.json").write_text("{}")
        assert origin_of(ledger, ledger.get("c"), "") == Origin(
            folder=folder, pushed=since, continues=("b", "a")
        )


@pytest.mark.parametrize(("command", "continues"), [(("python", "t.py"), ("a",)), (None, ())])
def test_a_point_that_a_batch_runs_again_continues_when_its_program_is_the_users(
    command: tuple[str, ...] | None, continues: tuple[str, ...], tmp_path: Path
) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db", now=lambda: NOW, alive=lambda _: True)
    spec = JOB if command is None else replace(JOB, train=None, command=command)
    for number, (run_id, point) in enumerate([("a", "p1"), ("other", "p2"), ("again", "p1")]):
        row = replace(RUN, id=run_id, batch="lr", point=point, created_at=NOW + number, parent=None)
        ledger.add(replace(row, out_dir=str(tmp_path / run_id), spec_json=dump_job(spec)))
    assert origin_of(ledger, ledger.get("again"), "").continues == continues
    assert origin_of(ledger, ledger.get("a"), "").continues == ()
    ledger.add(replace(ledger.get("a"), id="another", point="", created_at=NOW + 9))
    for row in (replace(ledger.get("a"), id="n", leader="a"), replace(ledger.get("a"), id="h", point="")):
        assert (chains.lineage_of(ledger, row), chains.continuation_of(ledger, row)) == ([row], None)


def start_of_last(terminal: Terminal) -> str | None:
    return read_job(terminal.ledger.runs()[0].spec_json).checkpoints.start_from


def crashed_at_step_4(tmp_path: Path) -> Terminal:
    """With the checkpoint of step 4 at home, and a run of that job that continued it."""
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch()
    terminal.launch("--from", "last")
    return terminal


def test_an_attempt_without_a_checkpoint_of_its_own_is_continued_from_the_one_before(tmp_path: Path) -> None:
    terminal = crashed_at_step_4(tmp_path)
    second, first = terminal.ledger.runs()
    third = replace(second, id="third", parent=second.id, cause=Cause.STOPPED, out_dir=str(tmp_path / "3"))
    terminal.ledger.add(third)
    for run in (second, first):
        folder = Path(run.out_dir) / "checkpoints"
        assert terminal.document("why", "third")["next"].endswith("--from third")
        assert origin_of(terminal.ledger, replace(run, id="new", parent="third"), "").folder == folder
        shutil.rmtree(folder)
    assert "--from" not in terminal.document("why", "third")["next"]
    assert "left no checkpoint" in terminal.launch("--from", "third").stderr


def test_a_run_that_was_continued_says_by_which_and_how_that_ended(tmp_path: Path) -> None:
    terminal = crashed_at_step_4(tmp_path)
    second, first = terminal.ledger.runs()
    ended = f"{second.id} continued it and ended FAILED: vastrun why {second.id}"
    assert terminal.document("why", first.id)["next"] == ended
    resumed = terminal.type("resume", first.id)
    assert resumed.exit_code == 2 and f"{second.id} continues it" in resumed.stderr
    third = replace(second, id="third", parent=second.id, phase=Phase.TRAIN, cause=None, ended_at=None)
    terminal.ledger.add(third)
    for run in (first, second):
        assert terminal.document("why", run.id)["next"] == "third continues it: vastrun attach third"


def test_the_same_work_is_not_continued_twice_at_once(tmp_path: Path) -> None:
    terminal = crashed_at_step_4(tmp_path)
    second, first = terminal.ledger.runs()
    terminal.ledger.add(replace(second, id="third", parent=second.id, phase=Phase.TRAIN, cause=None))
    rented = terminal.market.rentals
    for run in (first, second):
        refused = terminal.launch("--from", run.id)
        assert refused.exit_code == 2 and "third is continuing" in refused.stderr
    assert terminal.market.rentals == rented
    assert terminal.launch("--from", first.id, "--set", "train.optim.lr=0.5").exit_code == 5  # other work


def test_dollars_and_curve_are_those_of_all_attempts(tmp_path: Path) -> None:
    terminal = crashed_at_step_4(tmp_path)
    second, first = terminal.ledger.runs()
    end = terminal.document("attach", second.id)
    assert [one["id"] for one in end["attempts"]] == [first.id, second.id]
    assert end["usd_all_attempts"] == pytest.approx(sum(one["usd"] for one in end["attempts"]))
    for run, points in ((first, {1: 7, 2: 6}), (second, {2: 5, 3: 4})):
        text = "".join(f'{{"step": {step}, "loss": {loss}}}\n' for step, loss in points.items())
        (Path(run.out_dir) / "metrics.jsonl").write_text(text)
    (loss,) = report_of(terminal.ledger, second, terminal.clock.now()).series
    assert loss.points == ((1, 7), (2, 5), (3, 4))


def test_a_url_to_continue_from_is_part_of_the_job(terminal: Terminal) -> None:
    assert terminal.launch("--from-url", "s3://models/demo/otter").exit_code == 0
    assert start_of_last(terminal) == "s3://models/demo/otter"


def test_a_run_of_which_nothing_came_home_is_continued_from_what_it_pushed(terminal: Terminal) -> None:
    terminal.launch("--set", "checkpoints.push=s3://models/demo/")
    (first,) = terminal.ledger.runs()
    terminal.launch("--from", first.id)
    assert start_of_last(terminal) is None
    shutil.rmtree(Path(first.out_dir) / "checkpoints")
    terminal.launch("--from", first.id)
    assert start_of_last(terminal) == f"s3://models/demo/{first.id}"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--from", "last", "--from-url", "s3://models/demo/otter"), "exclude each other"),
        (("--from-url", "s3://key:secret@models"), "without a key in it"),
        (("--set", "train.freeze=codec"), "train.freeze needs a checkpoint to start from"),
        (("--set", "train.stage=refine"), "train.stage needs a checkpoint to start from"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_rented(
    terminal: Terminal, options: tuple[str, ...], said: str
) -> None:
    end = terminal.launch(*options)
    assert (end.exit_code, said in end.stderr) == (2, True), end.output
    assert not terminal.ledger.runs()
