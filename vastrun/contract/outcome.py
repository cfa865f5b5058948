"""Outcome: why the ranks ended, and the evidence of one training, from which the launcher draws a verdict.

The path of a reason: a rank ends with a reason and an exit code (`distributed/exit.py`, from `train.py`). The
supervisor sees it end (`supervision/rank_process.py`, `watch.py`), finds the first failure and its reason
(`diagnosis.py`), restarts the ranks where that can help (`restarts.py`), and records it (`supervise.py`).
When a run has ended, the launcher (`flow/run_end.py`) reads the record through its gate
(`gate/box_reader.py`);
`decisions/run_assessment.py` derives a cause from it and from the proofs, `core/verdict.py` says which
verdict and exit code follow, and `cli/launch.py` prints it.

Standard library only. `Outcome.to_json` and `Outcome.from_json` are the file format of `run/outcome.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from vastrun.contract.records import FileName, MaxLength, Pattern, Range, Text, read_json

Reason = Literal[
    "finished",
    "error",
    "oom",
    "signal",
    "communication",
    "data",
    "disk",
    "device",
    "diverged",
    "gate_missed",
    "hang",
    "network",
    "stopped",
]


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The meaning of one reason: its cause, its exit codes, and whether a restart may help."""

    cause: str | None
    """The launcher's `Cause`, by its value; None: nothing went wrong."""
    exit_code: int = 1
    """Exit code of the supervisor, and so of the onstart step 50-train."""
    rank_exit_code: int = 1
    """Exit code of a rank that ends with this reason."""
    is_curable: bool = False
    """True: a restart of the ranks may help, so a job's `restarts` may name the cause; else it recurs."""


REASONS: Mapping[Reason, Meaning] = {
    "finished": Meaning(cause=None, exit_code=0, rank_exit_code=0),
    "error": Meaning(cause="user_error"),
    "oom": Meaning(cause="out_of_memory", exit_code=76, rank_exit_code=76, is_curable=True),
    "signal": Meaning(cause="signal", is_curable=True),
    "communication": Meaning(cause="communication", is_curable=True),
    "data": Meaning(cause="data"),
    "disk": Meaning(cause="disk"),
    "device": Meaning(cause="host", is_curable=True),
    "network": Meaning(cause="host", is_curable=True),
    "diverged": Meaning(cause="diverged"),
    "gate_missed": Meaning(cause="gate_missed"),
    "hang": Meaning(cause="hang", exit_code=75, is_curable=True),
    # The code of a program that SIGTERM ended: 128 + 15.
    "stopped": Meaning(cause="stopped", exit_code=143, rank_exit_code=143),
}

Step = Annotated[int, Range(0, 10**12)]
RankNumber = Annotated[int, Range(0, 10**5)]
ExitCode = Annotated[int, Range(-255, 255)]
EpochSeconds = Annotated[float, Range(0, 1e11)]
"""Epoch seconds."""
Seconds = Annotated[float, Range(0, 1e10)]
Bytes = Annotated[int, Range(0, 10**15)]
"""A size in bytes."""
Share = Annotated[float, Range(0, 1)]
"""A part of a whole."""
Name = Annotated[str, MaxLength(200)]
Line = Annotated[str, Text(1000)]
Lines = Annotated[str, Text(20_000, lines=True)]
PathOnBox = Annotated[str, FileName()]
"""A path relative to the box's folder."""


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """The end of one rank."""

    rank: RankNumber
    exit_code: ExitCode | None
    """Exit code; negative: minus the number of the signal that ended it; None: its end was not observed."""
    signal: Name | None = None
    """Name of the signal that ended it (SIGSEGV); None: no signal did."""
    ended_by_us: bool = False
    """True when the supervisor or the launch agent ended it because of another rank."""
    reason: Line | None = None
    """Reason that the rank wrote when it ended: finished, oom, error, stopped...; None: it wrote nothing."""
    exception: Line | None = None
    """Type and message of its error in one line; None: there was no error, or it wrote nothing."""
    traceback: Lines | None = None
    last_lines: Annotated[str, Text(4000, lines=True)] | None = None
    """Last lines of output, of a rank that failed without an exception or wrote more after one."""
    step: Step = 0
    activity: Name = ""
    """Activity of the rank by its last heartbeat; empty: it never wrote one."""


@dataclass(frozen=True, kw_only=True)
class Hang:
    """A rank that stopped making progress while others waited for it."""

    rank: RankNumber
    step: Step
    activity: Name
    stalled_s: Seconds
    frame: Line
    """The innermost frame of its main thread: `file:line function`."""
    stacks: Annotated[tuple[PathOnBox, ...], MaxLength(10_000)]
    """Files with the stacks of all ranks, relative to the box's folder."""
    waits: Annotated[tuple[Line, ...], MaxLength(10_000)] = ()
    """Ranks that waited for others, with their activity: `rank 0 in backward`."""
    in_collective: bool = False
    """True: this rank was in a collective, too, so that the rank that caused the hang is unknown."""


WaitsFor = Literal["data", "collectives", "cpu", "disk", "unknown"]


@dataclass(frozen=True, kw_only=True)
class IdleGpus:
    """GPUs of a node that worked less than half of the time for minutes, and what its ranks waited for."""

    load: Share
    """Mean share of the time in which a kernel ran on a GPU."""
    seconds: Seconds
    """Length of the period so far."""
    step: Step
    """Step at its end."""
    waits_for: WaitsFor
    data: Share
    """Share of the time in which the ranks waited for data."""
    disk: Share
    """Share of the time in which a process of the run waited for a disk."""
    main_thread: Share
    """Mean share of a core that the main threads of the ranks used."""
    cores: Share
    """Share of the available cores that all processes of the run used."""


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """A file system that a run writes to."""

    path: Line
    """Its mount point; `the disk`: the file system of the box."""
    size: Bytes
    free: Bytes
    in_memory: bool = False
    full_at: EpochSeconds | None = None
    """Epoch seconds at which it was last seen full; None: never."""


@dataclass(frozen=True, kw_only=True)
class LeftProcess:
    """A process below the ranks after one had failed."""

    pid: Annotated[int, Range(0, 2**32)]
    parent: Annotated[int, Range(0, 2**32)]
    name: Name


@dataclass(frozen=True, kw_only=True)
class MachineReading:
    """Measurements of a machine when a rank had failed, compared with those at its start."""

    at: EpochSeconds
    file_systems: Annotated[tuple[FileSystem, ...], MaxLength(16)] = ()
    memory: Line = ""
    """Peak and limit of the memory; empty: unknown."""
    memory_killed: bool = False
    """True when the kernel killed a process for lack of memory."""
    memory_killed_at: EpochSeconds | None = None
    """Epoch seconds at which it last killed one of this run; None: never, or unknown."""
    gpu_faults: Annotated[tuple[Line, ...], MaxLength(100)] | None = None
    """Faults of the GPUs that the start did not have; None: not measured."""
    driver_cuda: Name = ""
    """Newest CUDA that the driver supports; empty: not measured."""
    reachable: Annotated[tuple[Name, ...], MaxLength(16)] = ()
    """Hosts of the run's data, packages and tracker that still answer."""
    unreachable: Annotated[tuple[Name, ...], MaxLength(16)] = ()
    """Hosts that answered at the start, and no longer do."""
    limits: Annotated[tuple[Line, ...], MaxLength(16)] = ()
    """Use of the limits of processes, open files and locked memory."""
    kernel_log: Annotated[tuple[Line, ...], MaxLength(16)] | None = None
    """XIDs and kills for lack of memory in the kernel's log since the start, or the XIDs of NVML; None: this
    machine shows neither."""
    processes: Annotated[tuple[LeftProcess, ...], MaxLength(64)] = ()


@dataclass(frozen=True, kw_only=True)
class FileChecksum:
    """A file with its size and its checksum."""

    path: PathOnBox
    size: Bytes
    sha256: Annotated[str, Pattern("[0-9a-f]{64}")]


@dataclass(frozen=True, kw_only=True)
class CheckpointEnd:
    """The newest complete checkpoint."""

    step: Step
    path: PathOnBox
    intact: bool
    """True: the supervisor read every file again, and all checksums matched."""


@dataclass(frozen=True, kw_only=True)
class RestoredSnapshot:
    """The snapshot of a user's program that was put back before its first start."""

    step: Step
    """The program's step when it saved that state; 0: unknown."""
    first_step: Step | None = None
    """The first step that the program reported after it; None: it reported none."""
    read: Line | None = None
    """The largest of its files that the program read before the next snapshot; empty: none; None: unknown."""

    @property
    def has_started_over(self) -> bool:
        """Tell whether the program started over, by its steps or, where it reports none, by what it read."""
        return self.first_step < self.step if self.step and self.first_step is not None else self.read == ""

    @property
    def text(self) -> str:
        """Return what is known of how the program began; empty: nothing."""
        text = f"the program read {self.read or 'no restored file before its next snapshot'}"
        if self.step and self.first_step is not None:
            text = f"restored at step {self.step}, and the program began at step {self.first_step}"
        elif self.read is None:
            return ""
        return f"WARNING: {text}" if self.has_started_over else text


@dataclass(frozen=True, kw_only=True)
class WandbRun:
    """The W&B run of this training."""

    id: Name
    mode: Literal["online", "offline", "off"]
    state: Literal["running", "finished", "failed", "crashed"]
    url: Line | None = None


@dataclass(frozen=True, kw_only=True)
class Check:
    """One condition of a user's `success:` section."""

    name: Name
    holds: bool
    text: Line


@dataclass(frozen=True, kw_only=True)
class StartRecord:
    """One start of the ranks, up to their end. After a failure the supervisor may restart them."""

    reason: Reason
    detail: Line
    """One line that says what happened, and to which rank."""
    world_size: RankNumber
    micro_batch: Step | None = None
    """Windows that a rank computed at once; None: the ranks never reported it."""
    steps_done: Step = 0
    checkpoint: Step | None = None
    """Step of the newest checkpoint after the ranks ended; None: there was none."""
    first_failure: RankEnd | None = None
    stage: Name | None = None
    """Stage that the ranks trained; None: they never said."""
    started_at: EpochSeconds
    ended_at: EpochSeconds


@dataclass(frozen=True, kw_only=True)
class StageEnd:
    """One of the stages of a training, as far as it came."""

    name: Name
    steps_done: Step = 0
    steps_planned: Step
    seconds: Seconds = 0.0
    """Time of the starts of the ranks on this machine that trained it."""
    scores: Annotated[dict[Name, float], MaxLength(1000)] | None = None
    """Scores at its end; None: it did not come to its end."""
    missed: Line | None = None
    """Conditions of its gate that the scores miss; None: it passed, or did not come to its end."""
    run_id: Name | None = None
    """Run that finished it: this one, or one that it continues; None: it did not come to its end."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The supervisor's record at the end. Fields about ranks describe their last start."""

    schema_version: int = 1
    kind: Name
    """Section of the job file that describes the program; `hold`: the machine was held."""
    reason: Reason
    detail: Line
    """One line that says what happened, and to which rank."""
    started_at: EpochSeconds
    ended_at: EpochSeconds
    world_size: RankNumber
    ranks: Annotated[tuple[RankEnd, ...], MaxLength(10_000)]
    first_failure: RankEnd | None = None
    hang: Hang | None = None
    stop_cause: Name | None = None
    """Cause in the stop file: stopped, pruned, time_limit, money_limit, slow; None: there was none."""
    stop_sent_at: EpochSeconds | None = None
    """Epoch seconds at which SIGTERM was sent to running ranks; None: never."""
    stop_sent_step: Step | None = None
    """Step that every rank had reached by then; None: no stop was sent."""
    final_record: bool = False
    """True: the trainer wrote its final record, `run/final.json`."""
    steps_done: Step = 0
    steps_planned: Step | None = None
    last_loss: float | None = None
    loss_finite: bool | None = None
    checkpoint: CheckpointEnd | None = None
    restored: RestoredSnapshot | None = None
    """None: there was none, or its program reported no steps."""
    scores: Annotated[dict[Name, float], MaxLength(1000)] | None = None
    """Scores of the final record (rollout_nrmse, persistence_nrmse); None: it has none."""
    wandb: WandbRun | None = None
    checks: Annotated[tuple[Check, ...], MaxLength(100)] = ()
    stages: Annotated[tuple[StageEnd, ...], MaxLength(16)] = ()
    """All stages of a training of several, in their order; empty for a single one."""
    idle_gpus: IdleGpus | None = None
    """The longest period in which the GPUs worked less than half of the time; None: there was none, or it
    is unknown."""
    reading: MachineReading | None = None
    """Measured when a rank had failed; None: none had."""
    packages: Annotated[dict[Name, Name], MaxLength(5000)] | None = None
    """Versions of Python and of its packages at the end, by name; None: not recorded."""
    printed_errors: Annotated[tuple[Line, ...], MaxLength(100)] = ()
    """Tracebacks that the ranks of a program printed, which then all exited 0."""
    nested_ranks: Line = ""
    """Ranks that a rank started, which may train the whole each; empty: none were seen."""
    starts: Annotated[tuple[StartRecord, ...], MaxLength(1000)] = ()
    """All starts of the ranks on this box, the last included."""

    def to_json(self) -> str:
        """Return the file's text. A loss that is not finite must be None, with `loss_finite` False.

        Raises ValueError for a number that is not finite.
        """
        return json.dumps(asdict(self), indent=1, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Outcome:
        """Read an outcome from a file's text. Raises RecordError, a ValueError, when the text is not one."""
        return read_json(cls, text)
