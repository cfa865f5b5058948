"""Chaos on a cluster: runs on a real Slurm of this computer, each with a trouble, and what they left."""

import contextlib
import random
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.terminal import WITH_STUB_TORCH, Launch, Terminal
from tests.emulators.slurm import Slurm
from tests.waiting import eventually

_LINES = 80
_MAX_S = 420.0
_JOB = """\
name: chatter
nodes: {nodes}
resources: {{gpus: 0, disk_gb: 8}}
ranks: 1
limits: {{hours: 0.1, stall_s: 120}}
command: python -uc "import time; [(print('line', n), time.sleep(0.1)) for n in range({lines})]"
success: {{log: line {last}$}}
"""
_RESUMES = 4
_NAMES_NODE = ("node set down",)


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A run that a trouble befalls."""

    terminal: Terminal
    cluster: Slurm
    launch: Launch

    @property
    def job(self) -> str:
        """Its number, once there is one."""
        return str(eventually(lambda: self.cluster.job_of("vastrun-"), what="a job"))

    @property
    def node(self) -> str:
        """Where it runs; of several nodes the last."""
        listed = self.cluster.run("squeue", "-h", "-j", self.job, "-o", "%N").strip()
        return self.cluster.run("scontrol", "show", "hostnames", listed).split()[-1]


def _cancel(run: Struck) -> None:
    run.cluster.run("scancel", run.job)


def _preempt(run: Struck) -> None:
    run.cluster.run("sbatch", "-purgent", "--exclusive", "-N2", "-t1", "-o/dev/null", "--wrap=sleep 4")


def _set_down(run: Struck) -> None:
    run.cluster.run("scontrol", "update", f"nodename={run.node}", "state=down", "reason=chaos")


def _drain(run: Struck) -> None:
    run.cluster.run("scontrol", "update", f"nodename={run.node}", "state=drain", "reason=chaos")


def _restart_slurmd(run: Struck) -> None:
    node = run.node
    run.cluster.kill_node(node)
    time.sleep(3.0)
    run.cluster.start_node(node)


def _kill_launcher(run: Struck) -> None:
    run.launch.kill()


def _kill_and_cancel(run: Struck) -> None:
    run.launch.kill()
    _cancel(run)


def _stop(run: Struck) -> None:
    run.terminal.type("stop", "last")


TROUBLES: Mapping[str, tuple[Callable[[Struck], None], tuple[str, ...]]] = {
    "scancel": (_cancel, ("LOST", "SUCCEEDED")),
    "preempted": (_preempt, ("PREEMPTED", "SUCCEEDED")),
    "node set down": (_set_down, ("LOST", "SUCCEEDED")),
    "drained node": (_drain, ("SUCCEEDED",)),
    "slurmd killed": (_restart_slurmd, ("SUCCEEDED",)),
    "launcher killed": (_kill_launcher, ("SUCCEEDED",)),
    "launcher killed, then scancel": (_kill_and_cancel, ("LOST", "SUCCEEDED")),
    "stop": (_stop, ("STOPPED", "SUCCEEDED")),
}
"""What befalls a run, and how it may end then. One that was over before may have succeeded."""


def run(*, runs: int = 20, seed: int = 0, parallel: int = 2, nodes: int = 1) -> bool:
    """Print a line for each run. True when nothing is left, no verdict is wrong and no line is lost."""
    began, faults = time.monotonic(), []
    with ThreadPoolExecutor(parallel) as pool:
        for over in as_completed([pool.submit(_launch, seed, number, nodes) for number in range(runs)]):
            line, fault = over.result()
            print(line, flush=True)
            faults += [fault] if fault else []
    print(f"chaos on Slurm: {runs} runs in {time.monotonic() - began:.0f} s; {len(faults)} with a fault")
    return not faults


def _launch(seed: int, number: int, nodes: int) -> tuple[str, str]:
    """A line on the run with that number, and what is wrong with how it ended; empty: nothing."""
    chance = random.Random(f"{seed}-{number}")
    name = list(TROUBLES)[number % len(TROUBLES)]
    strike, verdicts = TROUBLES[name]
    after_s = chance.uniform(0.5, 9.0)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, Slurm(slurmd_timeout_s=30) as cluster:
        terminal = Terminal(Path(folder), **cluster.variables)
        try:
            out = _driven(terminal, cluster, nodes, strike, after_s)
            verdict = found[1] if (found := re.search(r"verdict +([A-Z_]+)", out)) else "none"
            verdict_line = found[0] if (found := re.search(r"verdict .*", out)) else out[-300:]
            named = (
                nodes == 1
                or name not in _NAMES_NODE
                or verdict != "LOST"
                or f": node {nodes - 1}: " in verdict_line
            )
            fault = "" if verdict in verdicts and named else verdict_line
            fault = fault or _left(terminal, cluster) or _lost(terminal)
        finally:
            terminal.clean()
    line = f"{number:3}  {name} at {after_s:.1f} s: {verdict}{f'  FAULT: {fault}' if fault else ''}"
    return line, fault


def _driven(
    terminal: Terminal, cluster: Slurm, nodes: int, strike: Callable[[Struck], None], after_s: float
) -> str:
    """What was said of the run in the end; a launcher that was killed is followed by another."""
    job = terminal.folder / "job.yaml"
    job.write_text(_JOB.format(nodes=nodes, lines=_LINES, last=_LINES - 1))
    launch = terminal.start("launch", str(job), "--provider", "slurm", *WITH_STUB_TORCH)
    launch.shows("machine ")
    time.sleep(after_s)
    if launch.process.poll() is None and cluster.job_of("vastrun-") is not None:
        strike(Struck(terminal=terminal, cluster=cluster, launch=launch))
    try:
        done = launch.end(within_s=_MAX_S)
    except subprocess.TimeoutExpired:
        launch.kill()
        terminal.type("stop", "last", "--now")
        return f"hangs: {launch.err[-600:]}; {cluster.run('squeue', '-a', '-o', '%i %T %N %r')}"
    for _ in range(_RESUMES):
        if done.exit_code >= 0:
            break
        done = terminal.type("resume", "last")
    return done.out + done.err


def _left(terminal: Terminal, cluster: Slurm) -> str:
    """What is still rented."""
    # What was cancelled while its slurmd was away is ended by that a moment later.
    with contextlib.suppress(AssertionError):
        eventually(lambda: cluster.job_of("vastrun-") is None, within_s=60.0, what="the end of the job")
    listed = cluster.run("squeue", "-h", "-o", "%j %T %M %r").splitlines()
    jobs = [job for job in listed if job.startswith("vastrun-")]
    boxes = list((terminal.state / "vastrun" / "slurm").glob("[!.]*"))
    processes = terminal.leftovers()
    return f"left: job {jobs}, {boxes}, {processes}" if jobs or boxes or processes else ""


def _lost(terminal: Terminal) -> str:
    """Lines of the log that are missing, or there twice."""
    log = terminal.outputs() / "log.txt"
    text = log.read_text() if log.exists() else ""
    lines = [int(number) for number in re.findall(r"rank0 line (\d+)$", text, re.MULTILINE)]
    return "" if lines == list(range(len(lines))) else f"lines {lines}"
