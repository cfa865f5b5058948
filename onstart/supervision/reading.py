"""Reading: measure the machine once a rank has failed, to compare with its start. Standard library only.

While all is well only the file systems and the kernel's counters are looked at, once a second: what filled a
disk or /dev/shm is often removed when its process ends. The kernel counts kills for lack of memory, and its
peak use, for each cgroup; the holder of a machine counts them for each slot.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import FileIO
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from vastrun.contract import layout
from vastrun.contract.job import Job, working_folder
from vastrun.contract.outcome import FileSystem, MachineReading
from vastrun.onstart.boot.preflight.machine import dotted, gpu_faults
from vastrun.onstart.boot.preflight.nvidia_smi import driver_cuda
from vastrun.onstart.optional_files import number_in
from vastrun.onstart.supervision.failure_causes import UNCAUGHT, records_in
from vastrun.onstart.supervision.processes import program_processes

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""Bytes; cgroup v1 reports a larger number where there is no limit."""
TAKE_S = 3.0
"""Maximum seconds of a reading; what takes longer was not measured."""
FULL_BYTES = 1 << 18
"""Free bytes below which a file system counts as full."""
_SHM = Path("/dev/shm")
_MAX_HOSTS, _MAX_PROCESSES, _MAX_LIMITS = 8, 64, 16
_MAX_LOG_RECORDS, _MAX_LOG_RECORD_BYTES, _MAX_LOG_LINES = 10_000, 8192, 16
_IN_LOG = (b"NVRM: Xid", b"oom-kill:", b"Killed process")
_IN_MEMORY = ("tmpfs", "ramfs")

_XID_CRITICAL_ERROR = ctypes.c_ulonglong(8)
_MAX_EVENTS = 16
_GPUS, _CUDA, _XIDS = "gpus", "cuda", "xids"


class MachineReadings:
    """Measures the machine from the start of the ranks until they have ended."""

    def __init__(
        self,
        box: Path,
        job: Job,
        environ: Mapping[str, str] = os.environ,
        log: str = "/dev/kmsg",
        nvml: str = "libnvidia-ml.so.1",
    ) -> None:
        self._log = _kernel_log(log)
        self._box = box
        # The kernel's counters include earlier kills: only their increase counts.
        self._kills, self._own_kills = memory_kills(box), memory_kills(box, only_own=True)
        self._killed_at: float | None = None
        """Epoch seconds at which the last kill in this cgroup or slot was seen; None: there was none."""
        self._disks = _file_systems(box, environ.get("TMPDIR", "/tmp"))
        self._refused = _refused_processes()
        faults = partial(gpu_faults, gpus=job.gpus, torch=job.program.torch is not None)
        self._gpus = {_GPUS: faults} if job.gpus else {}
        # Slow, and needed only for a comparison: nothing waits for it.
        xids = {_XIDS: partial(_watch_xids, nvml)} if job.gpus and self._log is None else {}
        hosts = {host: partial(_connect, host) for host in _hosts(job, environ)}
        self._before = _Probes({**self._gpus, **xids, **hosts})

    def look(self) -> bool:
        """Note what may have passed when a process has ended, every second; tell whether a disk was full."""
        own_kills = memory_kills(self._box, only_own=True)
        if own_kills > self._own_kills:
            self._killed_at = time.time()
        self._own_kills = own_kills
        self._disks = {place: _measured(place, disk) for place, disk in self._disks.items()}
        return any(disk.full_at is not None for disk in self._disks.values())

    def take(self) -> MachineReading:
        """Measure the machine, within 3 seconds."""
        self.look()
        before = dict(self._before.found)
        hosts = [key for key in before if key not in (_GPUS, _XIDS)]
        probes: dict[str, Callable[[], Any]] = {host: partial(_connect, host) for host in hosts}
        if _XIDS in before:
            probes[_XIDS] = before[_XIDS]
        if _GPUS in before:
            probes |= {**self._gpus, _CUDA: driver_cuda}
        now = _Probes(probes).within(TAKE_S)
        new_faults = [fault for fault in now.get(_GPUS, ()) if fault not in before[_GPUS]]
        return MachineReading(
            at=time.time(),
            file_systems=tuple(self._disks.values()),
            memory=memory_use(self._box),
            memory_killed=self._killed_at is not None or memory_kills(self._box) > self._kills,
            memory_killed_at=self._killed_at,
            gpu_faults=tuple(new_faults) if _GPUS in now else None,
            driver_cuda=dotted(cuda) if (cuda := now.get(_CUDA)) else "",
            reachable=tuple(host for host in hosts if host in now),
            unreachable=tuple(host for host in hosts if host not in now),
            limits=tuple(self._limits())[-_MAX_LIMITS:],
            kernel_log=tuple(islice(_noted(self._log), _MAX_LOG_LINES)) if self._log else now.get(_XIDS),
            processes=tuple(program_processes(UNCAUGHT)[:_MAX_PROCESSES]),
        )

    def _limits(self) -> Iterator[str]:
        """Yield what each Python that failed used of its limits, and this machine of its processes."""
        for folder in sorted((self._box / layout.RANKS).glob("*.uncaught")):
            yield from (f"process {each.pid}: {each.limits}" for each in records_in(folder) if each.limits)
        for group in folders_of("pids"):
            if most := number_in(group / "pids.max"):
                used = number_in(group / "pids.peak") or number_in(group / "pids.current")
                yield f"{used} of {most} processes, {_refused_processes() - self._refused} refused"
                break


def _kernel_log(path: str) -> FileIO | None:
    """Open the kernel's log at its end; None where the machine does not show it, as in most containers."""
    with suppress(OSError):
        file = FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        file.seek(0, os.SEEK_END)
        return file
    return None


def _noted(log: FileIO) -> Iterator[str]:
    """Yield the new lines on GPUs and on kills for lack of memory."""
    for _ in range(_MAX_LOG_RECORDS):
        with suppress(BrokenPipeError):  # the oldest records were overwritten
            if not (record := log.read(_MAX_LOG_RECORD_BYTES)):
                return
            for line in record.split(b"\n"):
                if any(map(line.count, _IN_LOG)):
                    yield line.partition(b";")[2].decode(errors="replace")[:1000]


class _Probes:
    """Functions that run side by side; `found` has the results so far, without those that failed."""

    def __init__(self, probes: Mapping[str, Callable[[], Any]]) -> None:
        self.found: dict[str, Any] = {}
        self._threads = [Thread(target=self._run, args=item, daemon=True) for item in probes.items()]
        for thread in self._threads:
            thread.start()

    def within(self, seconds: float) -> Mapping[str, Any]:
        """Return the results once all are there, or the time is over."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return dict(self.found)

    def _run(self, name: str, probe: Callable[[], Any]) -> None:
        with suppress(OSError, ValueError):
            self.found[name] = probe()


def _file_systems(box: Path, tmp: str) -> dict[Path, FileSystem]:
    """Return the file systems that a run writes to by one place in each, that of the box first."""
    mounts = _mounts()
    places: dict[int, Path] = {}
    for place in (box, working_folder(box), box / layout.OUTPUTS, Path(tmp), _SHM):
        with suppress(OSError):
            places.setdefault(place.stat().st_dev, place)
    found = {}
    for device, place in places.items():
        mount, kind = mounts.get(f"{os.major(device)}:{os.minor(device)}", (str(place), ""))
        if place == box:
            mount, kind = "the disk", ""
        disk = FileSystem(path=mount, size=0, free=0, in_memory=kind in _IN_MEMORY)
        found[place] = _measured(place, disk)
    return found


def _mounts() -> dict[str, tuple[str, str]]:
    """Map the number of each mounted device to its place and the kind of its file system."""
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        rows = [line.split(" ") for line in lines]
        return {row[2]: (row[4], row[row.index("-") + 1]) for row in rows}
    return {}


def _measured(place: Path, disk: FileSystem) -> FileSystem:
    """Return the file system as it is now."""
    try:
        stat = os.statvfs(place)
    except OSError:
        return disk
    blocks, files = (stat.f_bfree, stat.f_ffree) if os.geteuid() == 0 else (stat.f_bavail, stat.f_favail)
    free = blocks * stat.f_frsize
    is_full = free < FULL_BYTES or (stat.f_files > 0 and files == 0)
    return replace(
        disk, size=stat.f_blocks * stat.f_frsize, free=free, full_at=time.time() if is_full else disk.full_at
    )


def _hosts(job: Job, environ: Mapping[str, str]) -> list[str]:
    """Return the hosts of the job's data, of its packages and of its tracker, as `name:port`."""
    urls = [
        *(file.url for file in job.data),
        *([environ.get("PIP_INDEX_URL", "https://pypi.org/")] if job.setup else []),
        *([environ.get("WANDB_BASE_URL", "https://api.wandb.ai/")] if "WANDB_API_KEY" in environ else []),
    ]
    ports = {"http": 80, "https": 443}
    parts = [urlsplit(url) for url in urls]
    hosts = [f"{each.hostname}:{each.port or ports[each.scheme]}" for each in parts if each.scheme in ports]
    return list(dict.fromkeys(hosts))[:_MAX_HOSTS]


def _connect(host: str) -> None:
    """Resolve the name of a host and connect to it. Raises OSError."""
    name, _, port = host.rpartition(":")
    socket.create_connection((name, int(port)), timeout=TAKE_S).close()


def _refused_processes() -> int:
    """Return how often the limit of processes of this cgroup was met."""
    return count("max", [folder / "pids.events" for folder in folders_of("pids")])


class _Event(ctypes.Structure):
    """NVML's `nvmlEventData_t`."""

    _fields_ = (("device", ctypes.c_void_p), ("type", ctypes.c_ulonglong), ("xid", ctypes.c_ulonglong))


def _watch_xids(library: str) -> Callable[[], tuple[str, ...]]:
    """Have NVML collect XIDs from now on; return a function that lists them: `XID 79 on GPU 0`.

    XIDs are the errors of GPUs that NVIDIA's driver reports: by NVML in a container, too, which the kernel's
    log seldom is.
    Raises OSError where NVML is missing, or a call of it fails.
    """
    nvml = ctypes.CDLL(library)

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(nvml, name)(*arguments):
            raise OSError(f"{name}: error {code}")

    count, events = ctypes.c_uint(), ctypes.c_void_p()
    call("nvmlInit_v2")
    call("nvmlDeviceGetCount_v2", ctypes.byref(count))
    call("nvmlEventSetCreate", ctypes.byref(events))
    gpus: dict[int | None, int] = {}
    for number in range(count.value):
        device = ctypes.c_void_p()
        call("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(device))
        call("nvmlDeviceRegisterEvents", device, _XID_CRITICAL_ERROR, events)
        gpus[device.value] = number

    def next_xid() -> str:
        event = _Event()
        ended = nvml.nvmlEventSetWait(events, ctypes.byref(event), 0)
        return "" if ended else f"XID {event.xid} on GPU {gpus.get(event.device, '?')}"

    return lambda: tuple(islice(iter(next_xid, ""), _MAX_EVENTS))


def memory_kills(box: Path, proc: Path = _PROC, cgroups: Path = _CGROUPS, *, only_own: bool = False) -> int:
    """Count processes that were killed for lack of memory.

    By the kernel in this cgroup, else, unless `only_own`, on this computer; and by the holder of the machine
    in this slot.
    """
    names = ("memory.events", "memory.oom_control")
    kernel = [folder / name for folder in folders_of("memory", proc, cgroups) for name in names]
    kernel += [] if only_own else [proc / "vmstat"]
    return count("oom_kill", (box / layout.MEMORY_EVENTS,)) + count("oom_kill", kernel)


def memory_use(box: Path, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> str:
    """Say the peak use of this slot, else of this cgroup; empty where it has no limit or is unknown."""
    slot = (box / layout.MEMORY_EVENTS,)
    limit, peak = count("limit", slot), count("peak", slot)
    for folder in () if limit else folders_of("memory", proc, cgroups):
        limit = number_in(folder / "memory.max") or number_in(folder / "memory.limit_in_bytes") or 0
        peak = number_in(folder / "memory.peak") or number_in(folder / "memory.max_usage_in_bytes") or 0
        if limit and peak:
            break
    is_known = peak and 0 < limit < _UNLIMITED
    return f"peak memory {peak / (1 << 30):.1f} GiB of {limit / (1 << 30):.1f} GiB" if is_known else ""


def folders_of(controller: str, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> Iterator[Path]:
    """Yield the folders of this process's cgroup, v2 and v1, then the roots that a container sees."""
    with suppress(OSError, ValueError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield cgroups / path.lstrip("/")
            elif controller in controllers.split(","):
                yield cgroups / controller / path.lstrip("/")
    yield cgroups
    yield cgroups / controller


def count(name: str, files: Iterable[Path]) -> int:
    """Return the named number from the first file that has it; 0 where none has."""
    for path in files:
        with suppress(OSError, ValueError):
            counts = dict(line.split()[:2] for line in path.read_text().splitlines())
            if name in counts:
                return int(counts[name])
    return 0
