"""A Slurm of this computer: a real slurmctld and two real slurmd, in one folder. Use it in a `with`."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import free_port
from tests.waiting import eventually

NODES = ("n1", "n2")
_CONFIG = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,batch_sched_delay=0,sched_min_interval=0
KillWait=10
MinJobAge=120
SlurmctldTimeout=10
SlurmdTimeout={slurmd_timeout_s}
OverTimeLimit=0
{nodes}
PartitionName=debug Nodes={names} Default=YES MaxTime=24:00:00 PriorityTier=1 State=UP
PartitionName=urgent Nodes={names} MaxTime=1:00:00 PriorityTier=10 State=UP
"""
_FOLDERS = ("/usr/sbin", "/usr/local/sbin")


def program(name: str) -> str | None:
    """The path of one of Slurm's daemons."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_FOLDERS]))


@cache
def shared() -> Self:
    """One cluster for all tests of this process that leave nothing there."""
    cluster = Slurm()
    return cluster.__enter__()


def end_shared() -> None:
    """As this process ends."""
    if shared.cache_info().currsize:
        shared().stop()


def is_here() -> bool:
    """Whether this computer has Slurm."""
    return all(program(name) for name in ("slurmctld", "slurmd", "sbatch", "squeue", "sinfo"))


class Slurm:
    """A cluster `lab`: nodes n1 and n2, and partitions `debug` and `urgent`, which preempts the former."""

    def __init__(self, *, cores: int = 8, slurmd_timeout_s: int = 10) -> None:
        """`slurmd_timeout_s`: a node that is silent for so long is down, and its jobs with it."""
        self._cores, self._slurmd_timeout_s = cores, slurmd_timeout_s
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def variables(self) -> dict[str, str]:
        """What Slurm's commands need of the environment."""
        return {"SLURM_CONF": str(self._folder / "slurm.conf")}

    def __enter__(self) -> Self:
        # Sockets lie there, whose paths may have 107 bytes: a test's own folder is too deep for them.
        self._folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        (self._folder / "state").mkdir()
        for name in NODES:
            (self._folder / f"spool-{name}").mkdir()
        controller, *ports = (free_port() for _ in ("", *NODES))
        host = socket.gethostname().partition(".")[0]
        nodes = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={self._cores} RealMemory=4000"
            for name, port in zip(NODES, ports, strict=True)
        ]
        (self._folder / "slurm.conf").write_text(
            _CONFIG.format(
                host=host,
                controller=controller,
                user=pwd.getpwuid(os.geteuid()).pw_name,
                folder=self._folder,
                slurmd_timeout_s=self._slurmd_timeout_s,
                nodes="\n".join(nodes),
                names=",".join(NODES),
            ),
            encoding="ascii",
        )
        self._start("slurmctld")
        for name in NODES:
            self.start_node(name)
        eventually(lambda: self._idle() == len(NODES), what="idle nodes")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """No job, no daemon."""
        jobs = self.run("squeue", "-h", "-o", "%i").split()
        if jobs:
            # Of a job that waits, this would wait, too.
            self.run("scancel", "--state=RUNNING", "--batch", "--signal=USR1", *jobs)
            self.run("scancel", *jobs)
            eventually(lambda: not self.run("squeue", "-h"), what="the end of all jobs")
        for name in list(self._daemons):
            self._end(name, signal.SIGTERM)
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, *words: str) -> str:
        """What one of Slurm's commands printed."""
        env = {**os.environ, **self.variables}
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60).stdout

    def start_node(self, name: str) -> None:
        """The node's slurmd is at work."""
        self._start(name, "slurmd", "-N", name)

    def kill_node(self, name: str) -> None:
        """As `kill -9` of the node's slurmd: what it started goes on."""
        self._end(name, signal.SIGKILL)

    def repair(self) -> None:
        """No job, and all nodes as they were at first."""
        if jobs := self.run("squeue", "-h", "-o", "%i").split():
            self.run("scancel", *jobs)
        self.repair_nodes()
        eventually(lambda: self._idle() == len(NODES), what="idle nodes")

    def repair_nodes(self) -> None:
        """All nodes take jobs again."""
        for name in NODES:
            if name not in self._daemons:
                self.start_node(name)
        for name in NODES:
            self.run("scontrol", "update", f"nodename={name}", "state=resume")

    def _idle(self) -> int:
        rows = [row.split() for row in self.run("sinfo", "-h", "-p", "debug", "-o", "%D %T").splitlines()]
        return sum(int(nodes) for nodes, state in rows if state == "idle")

    def job_of(self, label: str) -> int | None:
        """The number of the job with that comment, whose name begins so, or of any."""
        rows = [row.split("|") for row in self.run("squeue", "-h", "-o", "%i|%k").splitlines()]
        return next((int(number) for number, comment in rows if comment.startswith(label)), None)

    def size_of(self, label: str) -> int:
        """How many nodes the job has whose comment begins so."""
        return int(self.run("squeue", "-h", "-j", str(self.job_of(label)), "-o", "%D"))

    def _start(self, name: str, *words: str) -> None:
        command, *options = words or (name,)
        path = program(command)
        assert path is not None
        with (self._folder / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                [path, "-D", *options],
                env={**os.environ, **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _end(self, name: str, number: signal.Signals) -> None:
        daemon = self._daemons.pop(name)
        daemon.send_signal(number)
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
