"""Watch: starts the ranks, and stops or kills them by its rules until none is left. Standard library only.

Beside them runs the process that uploads checkpoints.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from vastrun.contract import layout, stop_budget
from vastrun.contract.job import Job, working_folder
from vastrun.contract.outcome import Hang
from vastrun.contract.stop_budget import PROGRAM_S, SUPERVISOR_S, SUPERVISOR_SAVING_S
from vastrun.onstart.optional_files import read_text
from vastrun.onstart.run_module import module_command
from vastrun.onstart.supervision import progress
from vastrun.onstart.supervision.core_file import MAX_CORES, CoreLocation, bounds_cores, core_location
from vastrun.onstart.supervision.diagnosis import ObservedLaunch, ends_here, left_early
from vastrun.onstart.supervision.failure_causes import signal_of
from vastrun.onstart.supervision.idle_gpus import IdleGpuWatch, NvidiaSmi
from vastrun.onstart.supervision.launch import Launch, environment_of
from vastrun.onstart.supervision.peers import NodeState, Peers
from vastrun.onstart.supervision.processes import kill_descendants, ranks_below, reap_orphans, start_logged
from vastrun.onstart.supervision.progress import ProgressTracker, beat_of, pid_of, write_status
from vastrun.onstart.supervision.rank_process import FAILED_GRACE_S, RankProcess, failure_grace_s
from vastrun.onstart.supervision.ranklogs import SUPERVISOR, MergedLog, Tail
from vastrun.onstart.supervision.reading import MachineReadings
from vastrun.onstart.supervision.restarts import Start
from vastrun.onstart.supervision.stacks import main_thread, top_frame
from vastrun.onstart.supervision.stop import StopRequest, stop_text

StartRanks = Callable[[Path, int, Mapping[str, str]], Launch]
"""Starts ranks, given the box, their number and their environment."""

_POLL_INTERVAL_S = 0.1
_PUMPS_PER_POLL = 2
"""Number of times the output of the ranks is read between two looks at them."""
AGENT_START_S = 300.0
"""Timeout of the agent's start of the ranks: importing torch takes minutes from a slow disk."""
AGENT_GRACE_S = 20.0
"""Seconds until the agent is killed when no rank is left."""
DRAIN_S = 10.0
"""Seconds for reading the rest of the logs."""
PUSH_LOG = f"{layout.RAW_LOGS}/push.log"
LAST_PUSH_S = 60.0
"""Maximum seconds to push the last checkpoint after the ranks ended: the machine costs money meanwhile."""


def run_ranks(
    box: Path, job: Job, start: Start, begin: StartRanks, stop: StopRequest, log: MergedLog, peers: Peers
) -> ObservedLaunch:
    """Start the ranks and return when none of them, and none of their processes, is left."""
    this_node = peers.this_node
    observed = ObservedLaunch(
        started_at=time.time(),
        this_node=this_node,
        world_size=start.world_size * this_node.nodes,
        training=job.program.keeps_records,
        steps_needed=job.success.steps if job.success else None,
    )
    readings = MachineReadings(box, job)
    launch = begin(box, start.world_size, environment_of(box, job, start, this_node))
    if this_node.is_host:  # checkpoints are on the first node
        start_push(box, job)
    log.follow(_tails(box, this_node.ranks(start.world_size)))
    watch = Watch(
        box=box,
        job=job,
        launch=launch,
        log=log,
        stop=stop,
        peers=peers,
        tracker=ProgressTracker(box=box),
        readings=readings,
        observed=observed,
        cores=core_location(working_folder(box)) if bounds_cores() else None,
        gpus=IdleGpuWatch(NvidiaSmi()) if job.gpus else None,
    )
    watch.until_over()
    watch.take_reading(has_failed=readings.look() or bool(launch.agent.poll()))
    processes = launch.end(within_s=5.0)
    log.drain(within_s=DRAIN_S)
    watch.report()
    if watch.gpus:
        watch.gpus.loads.close()
    observed = replace(
        watch.observed,
        processes=processes,
        agent_exit=launch.agent.poll(),
        killed=frozenset(launch.killed),
        stop_cause=stop.cause if watch.observed.stopped_at else None,
        idle_gpus=watch.gpus.longest if watch.gpus else None,
    )
    return add_peer_observations(box, observed, peers)


@dataclass(kw_only=True)
class Watch:
    """The watch over one launch."""

    box: Path
    job: Job
    launch: Launch
    log: MergedLog
    stop: StopRequest
    peers: Peers
    tracker: ProgressTracker
    readings: MachineReadings
    observed: ObservedLaunch
    """Observations so far."""
    cores: CoreLocation | None = None
    """Location of the cores to delete, but for the newest; None: none are."""
    gpus: IdleGpuWatch | None = None
    """Watch over the GPUs; None: the job uses none."""
    _since: dict[str, float] = field(default_factory=dict)
    _reported: set[int] = field(default_factory=set)
    _reports: int = 0

    def until_over(self) -> None:
        """Return when the agent has exited; kill the ranks when there is nothing more to wait for."""
        reported = 0.0
        while self.launch.agent.poll() is None:
            self.peers.listen()
            self.stop.peer_cause = self.peers.stop_cause
            self.peers.publish(stop_cause=self.stop.cause)
            processes = self.launch.processes()
            ranks_progress = self.tracker.ranks_progress(processes)
            if time.monotonic() - reported >= 1.0:
                reported = time.monotonic()
                self.report()
            if self._is_over(processes, ranks_progress):
                if ranks_progress:
                    self.launch.kill_ranks()
                return
            # Show meanwhile what the ranks print: that costs less than a look.
            for _ in range(_PUMPS_PER_POLL):
                time.sleep(_POLL_INTERVAL_S / _PUMPS_PER_POLL)
                self.log.pump()

    def take_reading(self, *, has_failed: bool) -> None:
        """Measure the machine once, before any clean-up, if something failed and no stop was asked for."""
        if has_failed and self.observed.reading is None and self.observed.stopped_at is None:
            self.observed = replace(self.observed, reading=self.peers.listen_while(self.readings.take))

    def report(self) -> None:
        """Write `run/status.json`, and log every rank that has ended."""
        processes = self.launch.processes()
        self._log_ends(processes)
        self.readings.look()
        self._warn_of_launchers(processes)
        if self.cores is not None:
            self.cores.delete(self.observed.started_at, keep=MAX_CORES)
        steps = self.job.program.total_steps
        ranks_progress, ranks = self.tracker.ranks_progress(processes), self.launch.world_size
        idle_gpus = None
        if self.gpus:
            pids = (pid_of(self.box, process) for process in processes if process.exit_code is None)
            self.gpus.look(ranks_progress, pids)
            idle_gpus = self.gpus.current
        write_status(self.box, ranks_progress, processes, world_size=ranks, steps=steps, idle_gpus=idle_gpus)
        reap_orphans(exclude=self.launch.agent.pid)

    def _warn_of_launchers(self, processes: tuple[RankProcess, ...]) -> None:
        """Warn once when each rank runs its own launcher: then each trains the whole.

        It looks each second in the first minute, then after 64, 128, 256... seconds.
        """
        self._reports += 1
        is_due = self._reports < 60 or not self._reports & (self._reports - 1)
        world, training = self.observed.world_size, self.observed.training
        if world == 1 or training or self.observed.nested_ranks or not is_due:
            return
        for process in processes:
            if process.exit_code is None and (ranks := ranks_below(process.pid)):
                name, values = min(ranks.items())
                warning = (
                    f"rank {process.rank} started processes that are ranks themselves ({name}="
                    f"{', '.join(sorted(values))}): {world} ranks may mean {world} whole trainings; leave "
                    "out the program's own launcher, or set ranks: 1"
                )
                self.observed = replace(self.observed, nested_ranks=warning)
                self.log.say(f"WARNING: {warning}")
                return

    def _is_over(
        self, processes: tuple[RankProcess, ...], ranks_progress: tuple[progress.RankProgress, ...]
    ) -> bool:
        self._log_ends(processes)
        # A stop comes first: ranks that fail during a stop did not fail on their own.
        if self.stop.cause is not None:
            if self.observed.stopped_at is None:
                at, step = time.time(), self._min_step()
                self.observed = replace(self.observed, stopped_at=at, stopped_at_step=step)
                self.log.say(f"{stop_text(self.stop.cause)}: the ranks save and exit")
                self.peers.publish(stopped_at=at, stopped_at_step=step)
            self.launch.ask_to_stop()
            saving = any(rank_progress.activity == "checkpoint" for rank_progress in ranks_progress)
            usual_s = SUPERVISOR_S if self.job.program.keeps_records else PROGRAM_S
            late = self._lasted("stop", SUPERVISOR_SAVING_S if saving else usual_s)
            return not ranks_progress or late
        training = self.job.program.keeps_records
        if any(
            process.exit_code or (training and process.exit_code == 0 and left_early(self.box, process))
            for process in processes
        ):
            self.peers.publish(failing=True)
            is_late = self._lasted("failed", failure_grace_s(self.box, processes))
            self.take_reading(has_failed=True)
            return is_late
        if self.peers.failing:
            return not ranks_progress or self._lasted("failed", FAILED_GRACE_S)
        if not ranks_progress:
            if processes and not self.peers.ended:
                return False  # it waits for those of the other nodes
            name, limit_s = ("leaving", AGENT_GRACE_S) if processes else ("starting", AGENT_START_S)
            return self._lasted(name, limit_s)
        # Last: ranks that wait for a failed rank do not hang.
        observable = progress.observable_ranks(ranks_progress, self.log.silent_s)
        is_stalled = self.peers.stalled or progress.stalled(observable, self.job)
        if is_stalled:
            self._record_hang(ranks_progress)
        return is_stalled

    def _min_step(self) -> int:
        """Return the step that every rank of this node has reached; 0 before the first beat of each."""
        ranks = self.peers.this_node.ranks(self.launch.world_size)
        beats = [beat_of(self.box, rank) for rank in ranks]
        return min((beat.step if beat else 0 for beat in beats), default=0)

    def _record_hang(self, ranks_progress: tuple[progress.RankProgress, ...]) -> None:
        # Before anything else: the other nodes must dump their stacks while these ranks still hang.
        self.peers.publish(stalled=True)
        self.log.say("no progress: the ranks are asked for their stacks, then killed")
        files = self.launch.dump_stacks(within_s=3.0)
        dumped = [
            replace(each, frames=main_thread(read_text(self.box / layout.STACKS / f"rank-{each.rank}.txt")))
            for each in progress.possibly_stuck(ranks_progress, self.log.silent_s)
        ]
        culprit = progress.find_stuck(dumped, self.job.program.folder)
        frame = top_frame(culprit.frames)
        hang = Hang(
            rank=culprit.rank,
            step=culprit.step,
            activity="" if culprit.activity == progress.LOG_ONLY else culprit.activity,
            stalled_s=round(culprit.still_s, 1),
            frame=frame.text(self.box) if frame else "",
            stacks=files,
            in_collective=progress.collective_of(culprit) is not None,
            waits=tuple(f"rank {s.rank} in {where}" for s in dumped if (where := progress.collective_of(s))),
        )
        self.observed = replace(self.observed, hang=hang)
        self.peers.publish(culprit=culprit, hang=hang)

    def _lasted(self, name: str, limit_s: float) -> bool:
        """Tell whether a named condition has lasted `limit_s`; the first call starts its timer."""
        now = time.monotonic()
        return now - self._since.setdefault(name, now) > limit_s

    def _log_ends(self, processes: tuple[RankProcess, ...]) -> None:
        for process in processes:
            if process.exit_code is not None and process.rank not in self._reported:
                self._reported.add(process.rank)
                how = signal_of(process.exit_code) or f"exit code {process.exit_code}"
                self.log.say(f"rank {process.rank} ended: {how}")


def _tails(box: Path, numbers: Iterable[int]) -> tuple[Tail, ...]:
    """Return the files that are merged into the log of the run."""
    ranks = [Tail(path=box / layout.RAW_LOGS / f"rank-{rank}.log", source=f"rank{rank}") for rank in numbers]
    agent = Tail(path=box / layout.AGENT_LOG, source=SUPERVISOR)
    return (agent, Tail(path=box / PUSH_LOG, source="push"), *ranks)


def add_peer_observations(box: Path, observed: ObservedLaunch, peers: Peers) -> ObservedLaunch:
    """Add the observations of the other nodes once their ranks have ended: all reach one diagnosis."""
    if peers.this_node.nodes == 1:
        return observed
    ends = ends_here(box, observed)
    peers.publish(
        ends=ends, failing=any(dated.failed for dated in ends), killed=tuple(sorted(observed.killed))
    )
    peers.wait_until_ended()
    states = [peers.state, *peers.in_this_start]
    stops = [
        peers.to_own_clock(state.node, state.stopped_at) for state in states if state.stopped_at is not None
    ]
    return replace(
        observed,
        elsewhere=tuple(
            replace(dated, at=peers.to_own_clock(state.node, dated.at))
            for state in states[1:]
            for dated in state.ends or ()
        ),
        killed=frozenset(rank for state in states for rank in state.killed),
        stop_cause=observed.stop_cause or peers.stop_cause,
        stopped_at=min(stops, default=None),
        stopped_at_step=min(
            (s.stopped_at_step for s in states if s.stopped_at_step is not None), default=None
        ),
        hang=common_hang(states),
        lost=tuple(sorted(peers.lost)),
    )


def common_hang(states: Sequence[NodeState]) -> Hang | None:
    """Return the hang that all nodes wait for, among those of each node."""
    hangs = {
        state.culprit: state.hang for state in states if state.culprit is not None and state.hang is not None
    }
    if not hangs:
        return None
    waits = tuple(wait for hang in hangs.values() for wait in hang.waits)
    return replace(hangs[progress.find_stuck([*hangs])], waits=waits)


def push_last(box: Path, job: Job, stop: StopRequest) -> None:
    """Push the last checkpoints, within the remaining time of a stop."""
    push = start_push(box, job, "once")
    if push is not None:
        with suppress(subprocess.TimeoutExpired):
            push.wait(last_push_s(stop.waited_s))
        kill_descendants(within_s=2.0)


def last_push_s(waited_s: float) -> float:
    """Return the timeout of the last push, `waited_s` seconds after a stop request; 0: no request."""
    return max(0.0, min(LAST_PUSH_S, stop_budget.PUSH_S - waited_s))


def start_push(box: Path, job: Job, *arguments: str) -> subprocess.Popen[bytes] | None:
    """Start the process that pushes each saved checkpoint, or the newest `once`; None: the job has no URL."""
    if job.push is None:
        return None
    (box / layout.RAW_LOGS).mkdir(parents=True, exist_ok=True)
    command = (*module_command("vastrun.onstart.transfer.push"), str(os.getpid()), *arguments)
    env = {**os.environ, "VASTRUN_BOX": str(box), "PYTHONUNBUFFERED": "1"}
    return start_logged(command, box / PUSH_LOG, env, cwd=box)
