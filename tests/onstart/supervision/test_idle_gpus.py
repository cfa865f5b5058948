"""GPUs that work less than half of the time for five minutes are noticed, with what their ranks wait for."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import pytest

from tests.onstart.supervision.launches import read_job
from tests.waiting import LONGEST_S, eventually
from vastrun.contract import layout
from vastrun.onstart.nodes import ThisNode
from vastrun.onstart.supervision.diagnosis import ObservedLaunch
from vastrun.onstart.supervision.idle_gpus import IdleGpuWatch, NvidiaSmi, ProcessTimes, process_times
from vastrun.onstart.supervision.launch import AdoptedAgent, Launch
from vastrun.onstart.supervision.peers import Peers
from vastrun.onstart.supervision.progress import ProgressTracker, RankProgress
from vastrun.onstart.supervision.ranklogs import MergedLog
from vastrun.onstart.supervision.reading import MachineReadings
from vastrun.onstart.supervision.stop import StopRequest
from vastrun.onstart.supervision.watch import Watch

EVERY_S = 5.0


class Machine:
    """A machine of four cores whose ranks are looked at every five seconds."""

    def __init__(self, *, ranks: int = 2) -> None:
        self.now = 1000.0
        self.load: float | None = 0.2
        self.activity = "forward"
        self.step = 7
        self.main_thread = 0.1
        self.workers = 0.0
        """Cores that other processes of the run use."""
        self.disk = False
        self.ranks = ranks
        self._spent = dict.fromkeys(range(ranks), 0.0)
        self._of_workers = 0.0
        self.watch = IdleGpuWatch(self, now=lambda: self.now, times=self._times, cores=4)

    def read(self) -> list[float]:
        return [] if self.load is None else [self.load] * self.ranks

    def close(self) -> None:
        self.load = None

    def _times(self, pids: Iterable[int]) -> ProcessTimes:
        assert list(pids) == list(range(self.ranks))
        return ProcessTimes(
            main_threads_s=dict(self._spent),
            processes_s={**self._spent, 99: self._of_workers},
            in_disk_wait=self.disk,
        )

    def lives(self, seconds: float) -> Self:
        for _ in range(round(seconds / EVERY_S)):
            self.now += EVERY_S
            self._of_workers += EVERY_S * self.workers
            self._spent = {rank: spent + EVERY_S * self.main_thread for rank, spent in self._spent.items()}
            ranks = [
                RankProgress(rank=rank, step=self.step, activity=self.activity, still_s=0.0)
                for rank in range(self.ranks)
            ]
            self.watch.look(ranks, range(self.ranks))
        return self


def test_low_load_counts_after_five_minutes_and_no_longer_once_the_gpus_work() -> None:
    machine = Machine().lives(290)
    assert machine.watch.current is None
    machine.lives(60)
    current = machine.watch.current
    assert current is not None
    assert (current.load, current.step) == (0.2, 7)
    assert 300 <= current.seconds <= 350
    machine.load = 1.0
    machine.lives(300)
    assert machine.watch.current is None
    assert machine.watch.longest is not None
    assert machine.watch.longest.seconds >= current.seconds


def test_shares_are_rounded_to_thousandths() -> None:
    machine = Machine()
    for number in range(70):
        machine.disk, machine.load = number % 3 == 0, (0.1, 0.2, 0.2)[number % 3]
        machine.main_thread, machine.workers = (0.3, 0.1, 0.1)[number % 3], (0.4, 0.0, 0.0)[number % 3]
        machine.activity = ("data", "forward", "forward")[number % 3]
        machine.lives(EVERY_S)
    current = machine.watch.current
    assert current is not None
    shares = (current.load, current.data, current.disk, current.main_thread, current.cores)
    assert shares == pytest.approx((1 / 6, 1 / 3, 1 / 3, 1 / 6, 1 / 8), abs=0.02)
    assert shares == tuple(round(share, 3) for share in shares)
    assert all(share != round(share, 2) for share in shares)


def report(box: Path, gpus: IdleGpuWatch) -> None:
    """Write the status of the only rank of a box."""
    job = read_job(ranks=1, gpus=1)
    Watch(
        box=box,
        job=job,
        launch=Launch(box=box, world_size=1, agent=AdoptedAgent(0)),
        log=MergedLog(path=box / layout.LOG),
        stop=StopRequest(path=box / layout.STOP),
        peers=Peers(this_node=ThisNode(), run_id=job.run_id),
        tracker=ProgressTracker(box=box),
        readings=MachineReadings(box, job, {}),
        observed=ObservedLaunch(started_at=0.0, world_size=1, training=False),
        gpus=gpus,
    ).report()


@pytest.mark.parametrize(("seconds", "idle"), [(100, None), (320, (0.2, "unknown"))])
def test_the_status_has_the_current_period(
    tmp_path: Path, seconds: float, idle: tuple[float, str] | None
) -> None:
    machine = Machine(ranks=1)
    machine.step, machine.activity = 0, ""
    machine.lives(seconds)
    (tmp_path / layout.RANKS).mkdir(parents=True)
    (tmp_path / layout.RANKS / "rank-0.process.json").write_text('{"rank": 0, "pid": 0, "started_at": 1.0}')
    # In a process of its own: it reaps the children of whichever process reports.
    child = multiprocessing.get_context("fork").Process(target=report, args=(tmp_path, machine.watch))
    child.start()
    child.join(LONGEST_S)
    assert child.exitcode == 0
    told = json.loads((tmp_path / layout.STATUS).read_text())["idle_gpus"]
    assert (told and (told["load"], told["waits_for"])) == idle


@pytest.mark.parametrize("loads", [(0.9, 0.2), (None,)])
def test_gpus_that_work_most_of_the_time_or_say_nothing_are_not_idle(loads: tuple[float | None, ...]) -> None:
    machine = Machine()
    for load in loads * 100:
        machine.load = load
        machine.lives(EVERY_S)
    assert machine.watch.longest is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"activity": "data"}, "data"),
        ({"activity": "data", "workers": 3.9}, "data"),
        ({"activity": "data", "disk": True}, "disk"),
        ({"main_thread": 0.95}, "cpu"),
        ({"workers": 3.8}, "cpu"),
        ({}, "collectives"),
        ({"ranks": 1}, "unknown"),
        ({"step": 0, "activity": ""}, "collectives"),  # a program that reports no steps
    ],
)
def test_the_reason_follows_from_what_the_ranks_do(changes: dict[str, object], reason: str) -> None:
    machine = Machine(ranks=int(str(changes.pop("ranks", 2))))
    for name, value in changes.items():
        setattr(machine, name, value)
    idle = machine.lives(320).watch.current
    assert idle is not None
    assert idle.waits_for == reason
    assert idle.cores == pytest.approx(
        min(1, (machine.ranks * machine.main_thread + machine.workers) / 4), 1e-2
    )


def test_time_before_the_first_step_and_gaps_do_not_count() -> None:
    machine = Machine()
    machine.step, machine.activity = 0, "compile"
    assert machine.lives(600).watch.current is None
    machine.step, machine.activity = 1, "forward"
    assert machine.lives(290).watch.current is None
    machine.now += 3600
    assert machine.lives(290).watch.current is None
    assert machine.lives(20).watch.current is not None


def test_loads_are_read_from_nvidia_smi_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(
        '#!/bin/sh\necho "$@" >"$0.args"\nprintf "37\\n[N/A]\\n100\\n4"\nexec sleep 600\n'
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    reader, loads = NvidiaSmi({"PATH": path, "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}), list[float]()

    def are_read() -> bool:
        loads.extend(reader.read())
        return len(loads) == 2

    eventually(are_read)
    reader.close()
    assert loads == [0.37, 1.0], "half a line waits for its rest"
    assert (tmp_path / "nvidia-smi.args").read_text().endswith("-l 5 -i GPU-1,GPU-2\n")
    assert NvidiaSmi({"PATH": str(tmp_path / "nowhere")}).read() == []


def test_cpu_time_of_a_process_is_read() -> None:
    # More than is asked for: ticks of 10 ms are rounded down, of user and system time each.
    program = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as process:
        eventually(lambda: process_times([process.pid]).main_threads_s[process.pid] >= 0.3)
        assert process_times([process.pid]).processes_s[process.pid] >= 0.3
        process.kill()
    assert process_times([process.pid]).main_threads_s == {}


@pytest.mark.parametrize(("states", "in_disk_wait"), [("RS", False), ("SD", True), ("D", True), ("", False)])
def test_a_rank_that_waits_for_a_disk_is_seen(tmp_path: Path, states: str, in_disk_wait: bool) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    for pid, state in enumerate(states):
        folder = tmp_path / str(pid) / "task" / str(pid)
        folder.mkdir(parents=True)
        before = " ".join(["0"] * 10)
        (folder / "stat").write_text(f"{pid} (a) b) {state} {before} {3 * ticks} {ticks} 0 0\n")
    times = process_times(range(3), proc=tmp_path)
    assert times.main_threads_s == dict.fromkeys(range(len(states)), 4.0)
    assert times.in_disk_wait is in_disk_wait
