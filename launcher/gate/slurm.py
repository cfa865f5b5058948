"""What Slurm's commands print becomes nouns: partitions, jobs, boxes, the cluster; or it is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.core.verdict import Cause
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.text import one_line

PARTITION_FIELDS = "%P|%a|%l|%D|%c|%m|%T|%G"
"""For `sinfo --noheader --exact`: the text that has no fixed form comes last."""
JOB_FIELDS = "%i|%T|%M|%V|%b|%D|%N|%r|%j|%k"
"""For `squeue --noheader`, with SLURM_TIME_FORMAT=%s."""
END = "@"
"""A line of its own behind each answer: what was cut short has none."""
PENDING = (
    *("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD"),
    "SPECIAL_EXIT",
)
"""The job has no node yet."""
ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "DEADLINE", "FAILED", "LAUNCH_FAILED"),
    *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"),
)
"""The job has its nodes no more. In any other state, also one that nobody knows, it has them."""
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
_STATE = re.compile(r"[A-Z_]{1,40}")
_VERSION = re.compile(r"[\w.-]{1,40}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """GPUs of one kind on each node."""

    kind: str
    """As the site names them: `a100`; empty: it does not say."""
    count: int


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Nodes of a partition that are alike, and in the same state."""

    name: str
    is_default: bool
    is_usable: bool
    """The partition takes jobs, and these nodes may run them."""
    is_idle: bool
    most_s: float | None
    """The longest that a job may run there; None: there is no limit."""
    nodes: int
    cores: int
    memory_mb: int
    """0: the site does not say."""
    gpus: tuple[Gpus, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """A job of the user's."""

    id: int
    name: str
    label: str
    """Its comment."""
    state: str
    reason: str
    """Why it waits, in Slurm's word; empty: it does not."""
    ran_s: float
    submitted_at: float
    """Epoch seconds by the cluster's clock; 0: it does not say."""
    gpus: int
    """On each node."""
    size: int
    """How many nodes it has, or waits for."""
    nodes: str
    """Empty: it has none yet."""

    @property
    def is_pending(self) -> bool:
        """It waits for its nodes."""
        return self.state in PENDING

    @property
    def is_over(self) -> bool:
        """It has its nodes no more."""
        return self.state in ENDED

    @property
    def is_ending(self) -> bool:
        """Its programs are being ended; what it ended with is said after that."""
        return self.state == "COMPLETING"


@dataclass(frozen=True, kw_only=True)
class Box:
    """A folder of ours on the shared disk."""

    name: str
    changed_at: float
    rendezvous: str = ""
    """What it says of where the other nodes reach it."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Who we are to which cluster."""

    name: str
    version: str
    user: str


def partitions_of(printed: str) -> list[Partition]:
    """Read what `sinfo` printed. Raises UnreachableError."""
    return [_partition(row) for row in _rows(printed, "sinfo")]


def jobs_of(printed: str, prefix: str) -> list[SlurmJob]:
    """Read those jobs of what `squeue` printed whose name begins so. Raises UnreachableError.

    Other jobs are none of our business: their names and comments may be anything.
    """
    found = []
    for row in _rows(printed, "squeue"):
        fields = row.split("|", 9)
        if len(fields) == 10 and fields[8].startswith(prefix):
            found.append(_job(fields, row))
    return found


def boxes_of(printed: str) -> list[Box]:
    """Read lines of `SECONDS NAME RENDEZVOUS`; a folder whose name cannot be ours is left out."""
    found = []
    for row in _rows(printed, "the shared disk"):
        moment, _, rest = row.partition(" ")
        name, _, rendezvous = rest.partition(" ")
        if _NAME.fullmatch(name):
            changed_at = _whole(moment.partition(".")[0], row, 10**11)
            place = rendezvous if _PLACE.fullmatch(rendezvous) else ""
            found.append(Box(name=name, changed_at=changed_at, rendezvous=place))
    if len({box.name for box in found}) < len(found):
        raise _nonsense("the shared disk", "a folder twice")
    return found


def job_id_of(printed: str) -> int | None:
    """Read the number that `sbatch --parsable` printed; None: it printed something else."""
    found = _JOB_ID.fullmatch(printed.strip())
    return int(found[1]) if found else None


def cluster_of(printed: str) -> Cluster:
    """Read three lines: the cluster's name, Slurm's version, the user. Raises UnreachableError."""
    rows = [row.strip() for row in _rows(printed, "scontrol")]
    forms = (_NAME, _VERSION, _NAME)
    if len(rows) != 3 or not all(form.fullmatch(row) for form, row in zip(forms, rows, strict=True)):
        raise _nonsense("scontrol", " ".join(rows))
    return Cluster(name=rows[0], version=rows[1], user=rows[2])


def missing_in(printed: str) -> tuple[str, int] | None:
    """Read names of nodes, a line each, then `-`, and those of them that are left.

    Return the name and the number of the one that is missing; None: not one is. Raises UnreachableError.
    """
    names, _, left = (" ".join(_rows(printed, "scontrol"))).partition(" - ")
    nodes, others = names.split()[: caps.SLURM_NODES], set(left.split())
    missing = [(name, number) for number, name in enumerate(nodes) if name not in others]
    return missing[0] if len(missing) == 1 and _NAME.fullmatch(missing[0][0]) else None


def free_gb_of(printed: str) -> float | None:
    """Read the free space in a line of kilobytes; None: it cannot be told."""
    text = printed.strip().removesuffix(END).strip()
    return int(text) * 1024 / 1e9 if re.fullmatch(r"\d{1,15}", text, re.ASCII) else None


def words_of(printed: str) -> str:
    """Return what a command of Slurm's complained of, as one line to be shown."""
    lines = [one_line(line[: caps.SLURM_CHARACTERS]).strip() for line in printed[-10_000:].splitlines()]
    text = "; ".join(line.partition("error: ")[2] or line for line in lines if line)
    return text[: caps.SLURM_CHARACTERS]


def _rows(printed: str, who: str) -> Sequence[str]:
    rows = printed.rstrip("\n").split("\n")
    if rows[-1] != END:
        raise _nonsense(who, "its answer has no end")
    return [row for row in rows[:-1] if row]


def _partition(row: str) -> Partition:
    fields = row.split("|", 7)
    if len(fields) != 8:
        raise _nonsense("sinfo", row)
    name, avail, limit, nodes, cores, memory, state, gres = fields
    bare_state = state.rstrip("*~#!%$@^-+").lower()
    if not _NAME.fullmatch(name.removesuffix("*")) or not re.fullmatch(r"[a-z_]{1,30}", bare_state, re.ASCII):
        raise _nonsense("sinfo", row)
    memory_mb = _whole(memory.rstrip("+"), row)
    return Partition(
        name=name.removesuffix("*"),
        is_default=name.endswith("*"),
        # A star behind its state: the node does not answer.
        is_usable=avail == "up" and bare_state not in _UNUSABLE and not state.endswith("*"),
        is_idle=bare_state == "idle",
        most_s=None if limit == "infinite" else _seconds(limit, row),
        nodes=_whole(nodes, row),
        cores=_whole(cores.rstrip("+"), row),
        memory_mb=memory_mb if memory_mb > 1 else 0,  # 1: what a site has that says nothing of it
        gpus=_gpus(gres),
    )


def _job(fields: Sequence[str], row: str) -> SlurmJob:
    number, state, ran, submitted, gres, size, nodes, reason, name, label = fields
    job_id = re.fullmatch(r"\d{1,10}", number, re.ASCII)
    known = _STATE.fullmatch(state) and _NAME.fullmatch(name) and _NODES.fullmatch(nodes)
    if not job_id or not known or len(label) > caps.SLURM_CHARACTERS:
        raise _nonsense("squeue", row)
    return SlurmJob(
        id=int(number),
        name=name,
        label=label,
        state=state,
        reason="" if reason == "None" else one_line(reason[: caps.SLURM_CHARACTERS]).strip(),
        ran_s=0.0 if ran in ("", "INVALID", "N/A") else _seconds(ran, row),
        submitted_at=_whole(submitted, row, 10**11) if submitted.isdecimal() else 0.0,
        gpus=sum(one.count for one in _gpus(gres)),
        size=max(1, min(_whole(size, row), caps.SLURM_NODES)),
        nodes=nodes,
    )


def _gpus(gres: str) -> tuple[Gpus, ...]:
    """Of a list such as `gpu:a100:4(S:0-1),nvme:1`."""
    found = _GPU.findall(gres[: caps.SLURM_CHARACTERS])
    return tuple(Gpus(kind=kind, count=int(count)) for kind, count in found if int(count))


def _seconds(text: str, row: str) -> float:
    """Of `1-02:03:04`, `02:03:04` or `03:04`."""
    found = _DURATION.fullmatch(text)
    if not found:
        raise _nonsense("Slurm", row)
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _whole(text: str, row: str, most: int = caps.SLURM_NUMBER) -> int:
    if not re.fullmatch(r"\d{1,12}", text, re.ASCII) or int(text) > most:
        raise _nonsense("Slurm", row)
    return int(text)


def _nonsense(who: str, what: str) -> UnreachableError:
    return UnreachableError(
        f"{who} answers what it should not: {one_line(what[:120])!r}", cause=Cause.PROVIDER
    )


def listed(names: Iterable[str], most: int = 5) -> str:
    """Return the first names as a list in words."""
    known = list(dict.fromkeys(names))
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + more
