"""The ledger, in SQLite and in PostgreSQL: what it keeps, and who may write."""

import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from tests.launcher.ledger.conftest import NOW, Hands
from tests.offers import rtx_4090
from tests.runs import a_run
from tests.waiting import LONGEST_S
from vastrun.launcher.core import (
    Cause,
    Driver,
    Event,
    ExtraRates,
    Forecast,
    MeasuredRun,
    Meter,
    Phase,
    Proof,
    Settled,
    UserRequest,
)
from vastrun.launcher.core.batch import Batch, BatchLimits, BatchPoint, BatchSpec, Budget
from vastrun.launcher.core.errors import BudgetError, HeldError, NoSuchRunError, StorageError
from vastrun.launcher.ledger.sql import SqlLedger

ME, OTHER = "desk:11:1.0", "desk:22:2.0"
RUN = a_run(job="quickstart", out_dir="/tmp/out", created_at=NOW)
FULL = replace(
    RUN,
    phase=Phase.ENDED,
    parent="bold-otter-0001",
    offer=rtx_4090(
        0,
        gpu_name=None,
        gpu_memory_gb=0.0,
        usd_per_hour=0.25,
        extras=ExtraRates(storage_usd_per_hour=0.01),
        forecast=Forecast(ready_s=60.0, train_s=3600.0, basis="measured", runs=3, steps_per_s=2.0),
    ),
    instance_id="i1",
    host="h1",
    usd_per_hour=0.25,
    rented_at=NOW + 1,
    released_at=NOW + 3,
    meter=Meter(extras=ExtraRates(up_usd_per_gb=0.02), began_at=NOW + 2, idle_s=1.0, up_gb=0.5),
    ended_at=NOW + 4,
    cause=Cause.SIGNAL,
    detail="rank 1 died by SIGSEGV",
    proofs=(Proof(name="ranks", holds=False, text="1 of 2"), Proof(name="loss", holds=None, text="?")),
    destroy_tries=2,
    step=7,
    steps=9,
    image="lab/own:1@sha256:12",
    batch="widths",
    point="0123456789",
    reserved_usd=3.5,
    charged=Settled(gpu_usd=0.25, storage_usd=0.125, traffic_usd=0.5),
)


def held_by(ledger: SqlLedger, who: str, *, until: float = NOW + 60) -> None:
    ledger.hold(RUN.id, Driver(who=who, until=until))


def test_a_run_comes_back_as_it_was_saved(ledger: SqlLedger, hands: Hands) -> None:
    ledger.add(RUN)
    held_by(ledger, ME)
    ledger.save(FULL, who=ME)
    ledger.close()
    assert hands.open().get(RUN.id) == FULL


def test_runs_come_newest_first_and_can_leave_out_those_that_ended(ledger: SqlLedger) -> None:
    older, newer = replace(RUN, id="a"), replace(FULL, id="b", parent=None, created_at=NOW + 1)
    ledger.add(older)
    ledger.add(newer)
    assert [run.id for run in ledger.runs()] == ["b", "a"]
    assert [run.id for run in ledger.runs(open_only=True)] == ["a"]


def test_the_nodes_of_one_run_or_of_several_are_listed_in_their_order(ledger: SqlLedger) -> None:
    for leader in ("a", "b", "c"):
        nodes = [replace(RUN, id=f"{leader}-n{node}", leader=leader, node=node) for node in (2, 1)]
        ledger.add(replace(RUN, id=leader), members=nodes)
    listed = {
        of: [run.id for run in ledger.runs(leader=leaders)]
        for of, leaders in {"one": "b", "two": ["c", "a"], "none": []}.items()
    }
    assert listed["one"] == ["b-n1", "b-n2"]
    assert sorted(listed["two"][:2]) == ["a-n1", "c-n1"]
    assert sorted(listed["two"][2:]) == ["a-n2", "c-n2"]
    assert listed["none"] == []
    assert [run.id for run in ledger.runs()] == ["c", "b", "a"]


def test_what_runs_have_shown_of_their_machines_is_read_without_the_rest(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    rows = [
        replace(FULL, id="fast", parent=None, steps_per_s=2.0),
        replace(FULL, id="booted", parent=None, created_at=NOW + 1, boot_s=60.0),
        replace(
            FULL, id="settled", parent=None, created_at=NOW + 2, charged=Settled(gpu_usd=1.0, tail_s=12.0)
        ),
        replace(FULL, id="showed-nothing", parent=None, charged=None),
        replace(FULL, id="node-1", parent=None, leader="fast", node=1, steps_per_s=2.0),
    ]
    for row in rows:
        ledger.add(row)
    shown = MeasuredRun(
        provider=FULL.provider, host="h1", gpu_name="", gpus=0, gpu_memory_gb=0.0, spec_json=FULL.spec_json
    )
    assert ledger.measured() == [
        replace(shown, tail_s=12.0),
        replace(shown, boot_s=60.0),
        replace(shown, steps_per_s=2.0),
    ]


def test_the_hours_of_bids_and_who_lost_them_are_read_with_the_kind_of_machine(ledger: SqlLedger) -> None:
    assert FULL.offer is not None
    offer = replace(FULL.offer, gpu_name="RTX 4090", gpus=2, gpu_memory_gb=24.0, bid_usd_per_hour=0.2)
    bid = replace(FULL, parent=None, offer=offer, boot_s=60.0, rented_at=NOW, released_at=NOW + 7200)
    rows = [
        replace(bid, id="taken", cause=Cause.PREEMPTED),
        replace(bid, id="kept", created_at=NOW + 1, cause=None),
        replace(bid, id="open", created_at=NOW + 2, cause=None, released_at=None),
        replace(
            bid, id="bought", created_at=NOW + 3, offer=replace(offer, bid_usd_per_hour=None), cause=None
        ),
    ]
    for row in rows:
        ledger.add(row)
    shown = MeasuredRun(
        provider=FULL.provider,
        host="h1",
        gpu_name="RTX 4090",
        gpus=2,
        gpu_memory_gb=24.0,
        spec_json=FULL.spec_json,
        boot_s=60.0,
    )
    assert ledger.measured() == [
        shown,
        shown,
        replace(shown, bid_hours=2.0),
        replace(shown, bid_hours=2.0, preempted=True),
    ]


def test_a_run_that_is_not_there_is_said_to_be_missing(ledger: SqlLedger) -> None:
    with pytest.raises(NoSuchRunError, match="no-such"):
        ledger.get("no-such")


def test_the_diary_keeps_its_order(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    events = [Event(run_id=RUN.id, at=NOW, phase=Phase.RENT, text=text, usd=0.5) for text in "ba"]
    for event in events:
        ledger.add_event(event)
    assert list(ledger.events(RUN.id)) == events


def test_a_stronger_request_is_never_replaced_by_a_weaker(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    assert ledger.user_request(RUN.id) is UserRequest.NONE
    ledger.ask(RUN.id, UserRequest.STOP)
    ledger.ask(RUN.id, UserRequest.DETACH)
    assert ledger.user_request(RUN.id) is UserRequest.STOP
    ledger.ask(RUN.id, UserRequest.DESTROY)
    assert ledger.user_request(RUN.id) is UserRequest.DESTROY


def test_a_second_driver_is_refused_and_told_who_drives(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    held_by(ledger, OTHER)
    with pytest.raises(HeldError, match="process 22 on desk") as caught:
        held_by(ledger, ME)
    assert caught.value.hint and caught.value.hint.startswith(f"vastrun logs -f {RUN.id}; if it is dead")


def test_a_second_driver_of_a_node_is_told_the_name_of_the_run(ledger: SqlLedger) -> None:
    node = replace(RUN, id=f"{RUN.id}-n1", leader=RUN.id, node=1)
    ledger.add(RUN)
    ledger.add(node)
    ledger.hold(node.id, Driver(who=OTHER, until=NOW + 60))
    with pytest.raises(HeldError, match=f"^{RUN.id} is driven by another launcher: process 22") as caught:
        ledger.save(node, who=ME)
    assert caught.value.hint == f"vastrun logs -f {RUN.id}; if it is dead, try again in 60 s"


def test_a_driver_may_hold_on_for_longer(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    held_by(ledger, ME, until=NOW + 60)
    before = ledger.driver(RUN.id)
    held_by(ledger, ME, until=NOW + 99)
    after = ledger.driver(RUN.id)
    assert before is not None
    assert after is not None
    assert (before.who, after.who) == (ME, ME)
    assert 38 < after.until - before.until < 60


def test_a_driver_that_fell_silent_is_replaced(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    held_by(ledger, OTHER, until=NOW - 1)
    assert ledger.driver(RUN.id) is None
    held_by(ledger, ME, until=NOW + 120)
    with pytest.raises(HeldError):
        ledger.save(RUN, who=OTHER)


def test_a_driver_whose_process_died_is_replaced_at_once(ledger: SqlLedger, hands: Hands) -> None:
    ledger.add(RUN)
    held_by(ledger, OTHER)
    hands.dead.add(OTHER)
    held_by(ledger, ME)
    driver = ledger.driver(RUN.id)
    assert driver is not None
    assert driver.who == ME


def test_only_its_driver_may_change_a_run(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    with pytest.raises(HeldError):
        ledger.save(FULL, who=ME)
    held_by(ledger, OTHER)
    with pytest.raises(HeldError, match="process 22"):
        ledger.save(FULL, who=ME)
    assert ledger.get(RUN.id) == RUN


def test_who_slept_while_others_drove_does_not_take_the_run_back(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    held_by(ledger, ME, until=NOW - 1)
    held_by(ledger, OTHER)
    ledger.release(RUN.id, OTHER)
    with pytest.raises(HeldError):
        ledger.hold(RUN.id, Driver(who=ME, until=NOW + 60), renews=True)
    held_by(ledger, ME)
    ledger.hold(RUN.id, Driver(who=ME, until=NOW + 60), renews=True)


def test_letting_go_frees_the_run_for_others_but_not_for_them_to_let_go(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    held_by(ledger, OTHER)
    ledger.release(RUN.id, ME)
    assert ledger.driver(RUN.id) is not None
    ledger.release(RUN.id, OTHER)
    held_by(ledger, ME)


_OPENED = """
import sys, time
from pathlib import Path
from vastrun.launcher.core import Driver
from vastrun.launcher.core.errors import HeldError

place = sys.argv[1]
if place.startswith("postgresql:"):
    from tests.launcher.ledger.computers import ledger_of
else:
    from vastrun.launcher.ledger.sqlite import SqliteLedger
print("ready", flush=True)
sys.stdin.readline()
if place.startswith("postgresql:"):
    ledger = ledger_of("desk~1", place, now=time.time)
else:
    ledger = SqliteLedger(Path(place), now=time.time, alive=lambda who: True)
"""
_RACER = f"""{_OPENED}
try:
    ledger.hold(sys.argv[2], Driver(who=sys.argv[3], until=time.time() + 60))
    print("won")
except HeldError:
    print("lost")
"""


def test_of_processes_that_race_for_a_run_exactly_one_wins(ledger: SqlLedger, hands: Hands) -> None:
    ledger.add(RUN)
    racers = [_start(_RACER, str(hands.place), RUN.id, f"desk:{number}:1.0") for number in range(4)]
    assert sorted(_race(racers)) == ["lost", "lost", "lost", "won"]


def test_processes_that_open_a_new_ledger_at_once_all_succeed(hands: Hands) -> None:
    program = f"{_OPENED}\nprint(len(ledger.runs()))"
    assert _race([_start(program, str(hands.place)) for _ in range(4)]) == ["0"] * 4


def _start(program: str, *arguments: str) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], **pipes)  # type: ignore[call-overload]
    assert isinstance(process, subprocess.Popen)
    return process


def _race(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Every process has started before the first may go on."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate(timeout=LONGEST_S)[0].strip() for process in processes]


def test_launchers_that_reserve_at_once_lose_no_dollar_and_reserve_none_twice(hands: Hands) -> None:
    """Twelve runs of a dollar each, out of eight dollars, from four launchers."""
    month = Budget(name="this month", usd=8.0, since=NOW - 10)
    ledgers, begun = [hands.open() for _ in range(4)], []

    def begin(number: int) -> None:
        for n in range(3):
            run = replace(RUN, id=f"run-{number}-{n}", reserved_usd=1.0)
            try:
                ledgers[number].add(run, [month])
            except BudgetError:
                continue
            begun.append(run.id)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {run.id for run in ledgers[0].runs()} == set(begun)
    assert len(begun) == 8
    assert ledgers[0].use_of(month).reserved_usd == pytest.approx(8.0)


def test_whatever_a_box_says_can_be_written_down(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    held_by(ledger, ME)
    ledger.save(replace(RUN, detail="died: \0\ud800 it's 100 % :over ?", step=10**12), who=ME)
    ledger.add_event(Event(run_id=RUN.id, at=NOW, phase=Phase.TRAIN, text="\0 %s ? :text"))
    assert "it's 100 % :over ?" in ledger.get(RUN.id).detail
    assert "%s ? :text" in ledger.events(RUN.id)[0].text


def test_a_run_is_written_once(ledger: SqlLedger) -> None:
    ledger.add(RUN)
    with pytest.raises(StorageError):
        ledger.add(RUN)
    assert ledger.count() == 1


def test_runs_of_one_moment_come_in_the_order_in_which_they_were_written(ledger: SqlLedger) -> None:
    for name in ("b", "c", "a"):
        ledger.add(replace(RUN, id=name))
    assert [run.id for run in ledger.runs()] == ["a", "c", "b"]
    assert [run.id for run in ledger.runs(newest=2)] == ["a", "c"]


def test_a_batch_comes_back_with_its_points_and_goes_on_as_it_was_asked_to(ledger: SqlLedger) -> None:
    spec = BatchSpec(name="widths", job="job.yaml", limits=BatchLimits(usd=1.0))
    batch = Batch(name="widths", spec=spec, provider="fake", folder="/o", created_at=NOW, opened_at=NOW)
    points = [BatchPoint(id=f"p{n}", values={"train.seed": n}, spec_json="{}") for n in range(3)]
    batches = ledger.batches

    assert batches.submit(batch, points) == 3
    assert batches.submit(batch, points[1:]) == 0
    assert [point.id for point in batches.points("widths")] == ["p1", "p2"]
    assert batches.values_of("widths", "p2") == {"train.seed": 2}
    ledger.add(replace(RUN, batch="widths", point="p0", reserved_usd=0.75))
    assert [point.wanted for point in batches.points("widths")] == [False, True, True]
    with pytest.raises(BudgetError):
        ledger.add(replace(RUN, id="other", batch="widths", reserved_usd=0.5))
    batches.again("widths", ["p0"])
    assert batches.points("widths")[0].starts == 2
    batches.hold("widths", Driver(who=OTHER, until=NOW + 60))
    assert batches.is_driven("widths")
    with pytest.raises(HeldError):
        batches.hold("widths", Driver(who=ME, until=NOW + 60))
    batches.release("widths", OTHER)
    assert not batches.is_driven("widths")
    with pytest.raises(HeldError, match="another launcher has driven widths since"):
        batches.hold("widths", Driver(who=OTHER, until=NOW + 60), renews=True)
    batches.end("widths", "no money")
    assert batches.get("widths").reason == "no money"
