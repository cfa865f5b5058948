"""Parsers for the output of Slurm's commands: partitions, jobs, boxes, the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.core.verdict import Cause
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.text import one_line

PARTITION_FIELDS = "%P|%a|%l|%D|%c|%m|%T|%G"
"""Format of `sinfo --noheader --exact`; the field without a fixed form comes last."""
JOB_FIELDS = "%i|%T|%M|%V|%b|%D|%N|%r|%j|%k"
"""Format of `squeue --noheader`, with SLURM_TIME_FORMAT=%s."""
END = "@"
"""Last line of each response: a truncated one lacks it."""
PENDING = (
    *("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"),
    "SPECIAL_EXIT",
)
"""States in which a job has no node yet."""
ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "DEADLINE", "FAILED", "LAUNCH_FAILED"),
    *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"),
)
"""States in which a job no longer has its nodes. In any other state, also an unknown one, it has them."""
_UNUSABLE = (
    *("down", "drained", "draining", "drng", "drain", "fail", "failing", "failg"),
    *("maint", "unknown", "inval"),
)
_DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2})")
_GPU = re.compile(r"(?:gres[:/])?gpu(?::([A-Za-z][\w.+-]{0,99}))?:(\d{1,4})(?![\w:])")
_NAME = re.compile(r"[\w.+-]{1,100}", re.ASCII)
_NODES = re.compile(r"[\w.,\[\]-]{0,300}", re.ASCII)
_PLACE = re.compile(r"[\w.:\[\]-]{0,300}", re.ASCII)
_JOB_ID = re.compile(r"(\d{1,10})(?:;[\w.-]{1,100})?", re.ASCII)
_TESTED = re.compile(r"(\d{1,3}) (\d{1,11}) (.*)", re.ASCII)
_START = re.compile(r"Job \d{1,10} to start at (\d{1,11}) ", re.ASCII)
_STATE = re.compile(r"[A-Z_]{1,40}")
_VERSION = re.compile(r"[\w.-]{1,40}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """GPUs of one kind on each node."""

    kind: str
    """Model in the site's words, such as `a100`; empty when the site names none."""
    count: int


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Nodes of a partition with equal hardware and state."""

    name: str
    is_default: bool
    is_usable: bool
    """The partition accepts jobs, and these nodes can run them."""
    max_s: float | None
    """Maximum seconds of a job; None: no limit."""
    nodes: int
    cores: int
    memory_mb: int
    """Memory of a node in MB; 0 when the site does not state it."""
    gpus: tuple[Gpus, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StartEstimate:
    """Answer of `sbatch --test-only`."""

    wait_s: float | None = None
    """Seconds until the job would start; None: unknown."""
    refusal: str = ""
    """Slurm's words; empty: it accepts the job."""
    preempts: bool = False
    """True if it would end other jobs for it."""


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """One of the user's jobs."""

    id: int
    name: str
    label: str
    """The job's comment."""
    state: str
    reason: str
    """Slurm's reason for the wait, or for the end; empty: it states none."""
    ran_s: float
    submitted_at: float
    """Epoch seconds by the cluster's clock; 0 when unknown."""
    gpus: int
    """GPUs on each node."""
    size: int
    """Number of nodes that the job has or waits for."""
    nodes: str
    """List of the job's nodes; empty while it has none."""

    @property
    def is_pending(self) -> bool:
        """The job waits for its nodes."""
        return self.state in PENDING

    @property
    def is_over(self) -> bool:
        """The job no longer has its nodes."""
        return self.state in ENDED

    @property
    def is_ending(self) -> bool:
        """The job's programs are being ended; Slurm states the final state afterwards."""
        return self.state == "COMPLETING"


@dataclass(frozen=True, kw_only=True)
class Box:
    """A box's folder on the shared disk."""

    name: str
    changed_at: float
    rendezvous: str = ""
    """Address at which the other nodes reach it, by its own account."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster, and the user's name on it."""

    name: str
    version: str
    user: str


def parse_partitions(printed: str) -> list[Partition]:
    """Parse the output of `sinfo`. Raises UnreachableError."""
    found = []
    for row in _rows(printed, "sinfo"):
        fields = row.split("|", 7)
        if len(fields) != 8:
            raise _malformed("sinfo", row)
        name, avail, limit, nodes, cores, memory, state, gres = fields
        word = state.rstrip("*~#!%$@^-+").lower()
        if not _NAME.fullmatch(name.removesuffix("*")) or not re.fullmatch(r"[a-z_]{1,30}", word, re.ASCII):
            raise _malformed("sinfo", row)
        memory_mb = _parse_integer(memory.rstrip("+"), row)
        partition = Partition(
            name=name.removesuffix("*"),
            is_default=name.endswith("*"),
            # A star after the state means that the node does not respond.
            is_usable=avail == "up" and word not in _UNUSABLE and not state.endswith("*"),
            max_s=None if limit == "infinite" else _parse_duration(limit, row),
            nodes=_parse_integer(nodes, row),
            cores=_parse_integer(cores.rstrip("+"), row),
            # 1 is Slurm's default where the site sets no RealMemory.
            memory_mb=memory_mb if memory_mb > 1 else 0,
            gpus=_parse_gpus(gres),
        )
        found.append(partition)
    return found


def parse_starts(printed: str, count: int) -> list[StartEstimate]:
    """Parse lines of `EXIT_CODE NOW OUTPUT` of `count` tests, whose line breaks are form feeds.

    Raises UnreachableError.
    """
    tests = [found for row in _rows(printed, "sbatch") if (found := _TESTED.fullmatch(row))]
    if len(tests) != count:
        raise _malformed("sbatch", printed)
    return [_parse_start(*test.groups()) for test in tests]


def _parse_start(exit_code: str, now: str, text: str) -> StartEstimate:
    if exit_code != "0":
        return StartEstimate(refusal=summarize_errors(text))
    start = _START.search(text)
    wait_s = max(0.0, float(start[1]) - float(now)) if start else None
    return StartEstimate(wait_s=wait_s, preempts="Preempts:" in text)


def parse_jobs(printed: str, prefix: str) -> list[SlurmJob]:
    """Parse the jobs in the output of `squeue` with this name prefix. Raises UnreachableError.

    Other jobs are skipped before their fields are checked: their names and comments may contain anything.
    """
    found = []
    for row in _rows(printed, "squeue"):
        fields = row.split("|", 9)
        if len(fields) == 10 and fields[8].startswith(prefix):
            found.append(_parse_job(fields, row))
    return found


def parse_boxes(printed: str) -> list[Box]:
    """Parse lines of `SECONDS NAME RENDEZVOUS`; folders with a name that vastrun never gives are skipped."""
    found = []
    for row in _rows(printed, "the shared disk"):
        moment, _, rest = row.partition(" ")
        name, _, rendezvous = rest.partition(" ")
        if _NAME.fullmatch(name):
            changed_at = _parse_integer(moment.partition(".")[0], row, 10**11)
            place = rendezvous if _PLACE.fullmatch(rendezvous) else ""
            found.append(Box(name=name, changed_at=changed_at, rendezvous=place))
    if len({box.name for box in found}) < len(found):
        raise _malformed("the shared disk", "duplicate folder")
    return found


def parse_job_id(printed: str) -> int | None:
    """Parse the job's number in the output of `sbatch --parsable`; None for any other output."""
    found = _JOB_ID.fullmatch(printed.strip())
    return int(found[1]) if found else None


def parse_cluster(printed: str) -> Cluster:
    """Parse three lines: the cluster's name, Slurm's version, the user. Raises UnreachableError."""
    rows = [row.strip() for row in _rows(printed, "scontrol")]
    forms = (_NAME, _VERSION, _NAME)
    if len(rows) != 3 or not all(form.fullmatch(row) for form, row in zip(forms, rows, strict=True)):
        raise _malformed("scontrol", " ".join(rows))
    return Cluster(name=rows[0], version=rows[1], user=rows[2])


def find_missing_node(printed: str) -> tuple[str, int] | None:
    """Parse a list of node names, a line each, then `-`, then the names that Slurm still knows.

    Return name and index of the missing node; None unless exactly one is missing. Raises UnreachableError.
    """
    names, _, left = (" ".join(_rows(printed, "scontrol"))).partition(" - ")
    nodes, found = names.split()[: caps.SLURM_NODES], set(left.split())
    missing = [(name, number) for number, name in enumerate(nodes) if name not in found]
    return missing[0] if len(missing) == 1 and _NAME.fullmatch(missing[0][0]) else None


def parse_free_gb(printed: str) -> float | None:
    """Parse free space in GB from a line in kilobytes; None when it is unknown."""
    text = printed.strip().removesuffix(END).strip()
    return int(text) * 1024 / 1e9 if re.fullmatch(r"\d{1,15}", text, re.ASCII) else None


def summarize_errors(printed: str) -> str:
    """Return the error messages of a Slurm command as one line for display."""
    lines = [one_line(line[: caps.SLURM_CHARACTERS]).strip() for line in printed[-10_000:].splitlines()]
    text = "; ".join(line.partition("error: ")[2] or line for line in lines if line)
    return text[: caps.SLURM_CHARACTERS]


def _rows(printed: str, who: str) -> Sequence[str]:
    rows = printed.rstrip("\n").split("\n")
    if rows[-1] != END:
        raise _malformed(who, "truncated output")
    return [row for row in rows[:-1] if row]


def _parse_job(fields: Sequence[str], row: str) -> SlurmJob:
    number, state, ran, submitted, gres, size, nodes, reason, name, label = fields
    job_id = re.fullmatch(r"\d{1,10}", number, re.ASCII)
    known = _STATE.fullmatch(state) and _NAME.fullmatch(name) and _NODES.fullmatch(nodes)
    if not job_id or not known or len(label) > caps.SLURM_CHARACTERS:
        raise _malformed("squeue", row)
    return SlurmJob(
        id=int(number),
        name=name,
        label=label,
        state=state,
        reason="" if reason == "None" else one_line(reason[: caps.SLURM_CHARACTERS]).strip(),
        ran_s=0.0 if ran in ("", "INVALID", "N/A") else _parse_duration(ran, row),
        submitted_at=_parse_integer(submitted, row, 10**11) if submitted.isdecimal() else 0.0,
        gpus=sum(one.count for one in _parse_gpus(gres)),
        size=max(1, min(_parse_integer(size, row), caps.SLURM_NODES)),
        nodes=nodes,
    )


def _parse_gpus(gres: str) -> tuple[Gpus, ...]:
    """Parse the GPUs in a list such as `gpu:a100:4(S:0-1),nvme:1`."""
    found = _GPU.findall(gres[: caps.SLURM_CHARACTERS])
    return tuple(Gpus(kind=kind, count=int(count)) for kind, count in found if int(count))


def _parse_duration(text: str, row: str) -> float:
    """Parse the seconds of `1-02:03:04`, `02:03:04` or `03:04`."""
    found = _DURATION.fullmatch(text)
    if not found:
        raise _malformed("Slurm", row)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _parse_integer(text: str, row: str, max_value: int = caps.SLURM_NUMBER) -> int:
    if not re.fullmatch(r"\d{1,12}", text, re.ASCII) or int(text) > max_value:
        raise _malformed("Slurm", row)
    return int(text)


def _malformed(who: str, what: str) -> UnreachableError:
    return UnreachableError(f"malformed response from {who}: {one_line(what[:120])!r}", cause=Cause.PROVIDER)


def join_names(names: Iterable[str], max_names: int = 5) -> str:
    """Join the first distinct names, with the number of the others."""
    known = list(dict.fromkeys(names))
    more = f" and {len(known) - max_names} more" if len(known) > max_names else ""
    return ", ".join(known[:max_names]) + more
