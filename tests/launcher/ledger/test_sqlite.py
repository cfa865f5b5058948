"""The ledger: what it keeps, who may write, and what it says when it cannot."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.core import (
    Cause,
    Driver,
    Event,
    ExtraRates,
    Forecast,
    Meter,
    Offer,
    Phase,
    Proof,
    Run,
    UserRequest,
)
from launcher.core.bills import cost_usd
from launcher.core.errors import HeldError, NoSuchRunError, StorageError
from launcher.ledger.sqlite import SqliteLedger
from tests import parts
from tests.waiting import LONGEST_S

NOW = 1_000_000.0
ME, OTHER = "desk:11:1.0", "desk:22:2.0"
RUN = Run(
    id="calm-heron-3f1a",
    job="quickstart",
    spec_json="{}",
    provider="local",
    phase=Phase.PLAN,
    out_dir="/tmp/out",
    created_at=NOW,
    phase_at=NOW,
)
FULL = replace(
    RUN,
    phase=Phase.ENDED,
    parent="bold-otter-0001",
    offer=Offer(
        id="o1",
        host="h1",
        gpu_name=None,
        gpus=0,
        gpu_memory_gb=0.0,
        disk_gb=40.0,
        usd_per_hour=0.25,
        description="this computer",
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
)


class Hands:
    """A clock to turn and a list of the dead."""

    now = NOW

    def __init__(self) -> None:
        self.dead: set[str] = set()

    def open(self, path: Path) -> SqliteLedger:
        return SqliteLedger(path, now=lambda: self.now, alive=lambda who: who not in self.dead)


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.db"


@pytest.fixture
def ledger(hands: Hands, path: Path) -> SqliteLedger:
    return hands.open(path)


def held_by(ledger: SqliteLedger, who: str, *, until: float = NOW + 60) -> None:
    ledger.hold(RUN.id, Driver(who=who, until=until))


def test_a_run_comes_back_as_it_was_saved(ledger: SqliteLedger, hands: Hands, path: Path) -> None:
    ledger.add(RUN)
    held_by(ledger, ME)
    ledger.save(FULL, who=ME)
    ledger.close()
    assert hands.open(path).get(RUN.id) == FULL


def test_runs_come_newest_first_and_can_leave_out_those_that_ended(ledger: SqliteLedger) -> None:
    older, newer = replace(RUN, id="a"), replace(FULL, id="b", parent=None, created_at=NOW + 1)
    ledger.add(older)
    ledger.add(newer)
    assert [run.id for run in ledger.runs()] == ["b", "a"]
    assert [run.id for run in ledger.runs(open_only=True)] == ["a"]


def test_a_run_that_is_not_there_is_said_to_be_missing(ledger: SqliteLedger) -> None:
    with pytest.raises(NoSuchRunError, match="no-such"):
        ledger.get("no-such")


def test_the_diary_keeps_its_order(ledger: SqliteLedger) -> None:
    ledger.add(RUN)
    events = [Event(run_id=RUN.id, at=NOW, phase=Phase.RENT, text=text, usd=0.5) for text in "ba"]
    for event in events:
        ledger.tell(event)
    assert list(ledger.events(RUN.id)) == events


def test_a_stronger_request_is_never_replaced_by_a_weaker(ledger: SqliteLedger) -> None:
    ledger.add(RUN)
    assert ledger.user_request(RUN.id) is UserRequest.NONE
    ledger.ask(RUN.id, UserRequest.STOP)
    ledger.ask(RUN.id, UserRequest.DETACH)
    assert ledger.user_request(RUN.id) is UserRequest.STOP
    ledger.ask(RUN.id, UserRequest.DESTROY)
    assert ledger.user_request(RUN.id) is UserRequest.DESTROY


def test_a_second_driver_is_refused_and_told_who_drives(ledger: SqliteLedger) -> None:
    ledger.add(RUN)
    held_by(ledger, OTHER)
    with pytest.raises(HeldError, match="process 22 on desk") as caught:
        held_by(ledger, ME)
    assert caught.value.hint == f"vastrun logs -f {RUN.id}"


def test_a_driver_may_hold_on_for_longer(ledger: SqliteLedger) -> None:
    ledger.add(RUN)
    held_by(ledger, ME, until=NOW + 1)
    held_by(ledger, ME, until=NOW + 99)
    assert ledger.driver(RUN.id) == Driver(who=ME, until=NOW + 99)


def test_a_driver_that_fell_silent_is_replaced(ledger: SqliteLedger, hands: Hands) -> None:
    ledger.add(RUN)
    held_by(ledger, OTHER, until=NOW + 60)
    hands.now = NOW + 61
    assert ledger.driver(RUN.id) is None
    held_by(ledger, ME, until=NOW + 120)
    with pytest.raises(HeldError):
        ledger.save(RUN, who=OTHER)


def test_a_driver_whose_process_died_is_replaced_at_once(ledger: SqliteLedger, hands: Hands) -> None:
    ledger.add(RUN)
    held_by(ledger, OTHER)
    hands.dead.add(OTHER)
    held_by(ledger, ME)
    driver = ledger.driver(RUN.id)
    assert driver is not None
    assert driver.who == ME


def test_only_its_driver_may_change_a_run(ledger: SqliteLedger) -> None:
    ledger.add(RUN)
    with pytest.raises(HeldError):
        ledger.save(FULL, who=ME)
    held_by(ledger, OTHER)
    with pytest.raises(HeldError, match="process 22"):
        ledger.save(FULL, who=ME)
    assert ledger.get(RUN.id) == RUN


def test_letting_go_frees_the_run_for_others_but_not_for_them_to_let_go(ledger: SqliteLedger) -> None:
    ledger.add(RUN)
    held_by(ledger, OTHER)
    ledger.release(RUN.id, ME)
    assert ledger.driver(RUN.id) is not None
    ledger.release(RUN.id, OTHER)
    held_by(ledger, ME)


_RACER = """
import sys, time
from pathlib import Path
from launcher.core.errors import HeldError
from launcher.ledger.sqlite import SqliteLedger
from launcher.core import Driver

print("ready", flush=True)
sys.stdin.readline()
ledger = SqliteLedger(Path(sys.argv[1]), now=time.time, alive=lambda who: True)
try:
    ledger.hold(sys.argv[2], Driver(who=sys.argv[3], until=time.time() + 60))
    print("won")
except HeldError:
    print("lost")
"""


def test_of_processes_that_race_for_a_run_exactly_one_wins(ledger: SqliteLedger, path: Path) -> None:
    ledger.add(RUN)
    racers = [_start(_RACER, str(path), RUN.id, f"desk:{number}:1.0") for number in range(4)]
    assert sorted(_race(racers)) == ["lost", "lost", "lost", "won"]


_OPENER = """
import sys, time
from pathlib import Path
from launcher.ledger.sqlite import SqliteLedger

print("ready", flush=True)
sys.stdin.readline()
print(len(SqliteLedger(Path(sys.argv[1]), now=time.time, alive=lambda who: True).runs()))
"""


def test_processes_that_open_a_new_ledger_at_once_all_succeed(path: Path) -> None:
    assert _race([_start(_OPENER, str(path)) for _ in range(4)]) == ["0"] * 4


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


def test_a_run_of_before_the_meter_is_charged_all_of_its_time(hands: Hands, path: Path) -> None:
    hands.open(path).add(FULL)
    with sqlite3.connect(path) as db:
        db.executescript(
            "DROP INDEX runs_by_batch; DROP INDEX runs_by_parent; DROP TABLE points; DROP TABLE batches;"
            "DROP INDEX runs_by_leader"
        )
        for column in (
            "batch",
            "point",
            "reserved_usd",
            "held_usd",
            "meter",
            "boot_s",
            "steps_per_s",
            "image",
            "rentals",
            "account",
            "clock_ahead_s",
            "ledger",
            "leader",
            "node",
            "failed_node",
        ):
            db.execute(f"ALTER TABLE runs DROP COLUMN {column}")
        db.execute("ALTER TABLE events DROP COLUMN told")
        db.execute("DROP TABLE identity")
        db.execute("UPDATE runs SET offer = json_remove(offer, '$.extras')")
        db.execute("PRAGMA user_version = 2")

    run = hands.open(path).get(RUN.id)

    assert (run.meter, run.rented_at) == (Meter(), FULL.rented_at)
    assert cost_usd(run, NOW + 9) == pytest.approx(2 / 3600 * 0.25)


def test_a_ledger_of_a_newer_program_is_left_alone(hands: Hands, path: Path) -> None:
    hands.open(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="newer vastrun") as caught:
        hands.open(path)
    assert "upgrade" in caught.value.hint


def test_a_folder_that_takes_no_writes_gives_one_clear_line(hands: Hands, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="cannot write") as caught:
        hands.open(tmp_path / "file" / "ledger.db")
    assert "XDG_STATE_HOME=" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_ledger_is_named_and_not_overwritten(hands: Hands, path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("these are my notes, not a database\n" * 50)
    with pytest.raises(StorageError, match="damaged"):
        hands.open(path)
    assert path.read_text().startswith("these are my notes")


_ON_A_DISK_OF_ITS_OWN = """
import subprocess, sys, time
from dataclasses import replace
from pathlib import Path
from launcher.core.errors import StorageError
from launcher.ledger.sqlite import SqliteLedger
from launcher.core import Driver, Phase, Run

folder = Path(sys.argv[1])

def open_ledger():
    return SqliteLedger(folder / "ledger.db", now=time.time, alive=lambda who: True)

def remount(options):
    subprocess.run(["mount", "-o", f"remount,bind,{options}", str(folder)], check=True)

run = Run(id="a", job="j", spec_json="{}", provider="local", phase=Phase.PLAN, out_dir="/o", created_at=1.0,
          phase_at=1.0)
ledger = open_ledger()
ledger.add(run)
ledger.hold("a", Driver(who="me", until=time.time() + 60))
"""

_FULL_DISK = """
try:
    ledger.save(replace(run, spec_json="x" * 1_000_000), who="me")
except StorageError as error:
    print(error, "|", error.hint, "|", open_ledger().get("a") == run)
"""

_READ_ONLY_DISK = """
ledger.close()
remount("ro")
try:
    open_ledger().add(replace(run, id="b"))
except StorageError as error:
    print(error, "|", error.hint)
"""


def test_a_full_disk_gives_one_clear_line_and_loses_no_row(tmp_path: Path) -> None:
    said = _on_a_small_disk(tmp_path, _FULL_DISK)
    assert re.fullmatch(r"no space left for .*ledger.db \| XDG_STATE_HOME=.* \| True", said)


def test_a_read_only_home_gives_one_clear_line(tmp_path: Path) -> None:
    said = _on_a_small_disk(tmp_path, _READ_ONLY_DISK)
    assert re.fullmatch(r"cannot write .*ledger.db: .* \| XDG_STATE_HOME=.*", said)


def _on_a_small_disk(folder: Path, program: str) -> str:
    """What the program prints on a file system of its own, 256 KiB small."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    alone = ["unshare", *user, "--mount", "sh", "-ec"]
    mount = f"mount -t tmpfs -o size=256k tmpfs '{folder}'"
    parts.require("disks")
    command = [
        *alone,
        mount + '; exec "$@"',
        "sh",
        sys.executable,
        "-c",
        _ON_A_DISK_OF_ITS_OWN + program,
        folder,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
