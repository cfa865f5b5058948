"""Machine check: measure the machine, and compare it with the job's needs. Standard library only."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from vastrun.contract.program import ProgramSpec
from vastrun.contract.texts import how_many
from vastrun.onstart.boot.preflight.nvidia_smi import Gpu, NvidiaSmiError, driver_cuda, read_gpus

_SHM = Path("/dev/shm")
_SHM_MIB = 1024
_SHM_ADVICE = "/dev/shm is smaller than 1 GiB: start the container with --shm-size or --ipc=host"
_FREE_MIB = 512
Version = tuple[int, int]

OLDEST_TORCH: Version = (2, 1)
"""Oldest torch with which the preflight tests communication."""
EXIT_UNFIT_IMAGE = 78


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The measured machine. GPUs are inspected only when the job needs any."""

    cpu: str
    shm_mib: int
    free_mib: int
    gpus: tuple[Gpu, ...] = ()
    nvidia_smi_fault: str = ""
    driver_cuda: Version | None = None
    torch_cuda: Version | None = None
    disk_mb_per_s: float | None = None


def inspect_machine(box: Path, *, gpus: int) -> Machine:
    """Measure this machine for a job with that number of GPUs."""
    model = re.search(r"^model name[^:\n]*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal: *(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    gib = int(memory[1]) >> 20 if memory else 0
    cores = len(os.sched_getaffinity(0))
    machine = Machine(
        cpu=f"CPU {model[1] if model else 'unknown'}, {cores} cores, {gib} GiB of memory",
        shm_mib=shutil.disk_usage(_SHM).total >> 20 if _SHM.exists() else 0,
        free_mib=shutil.disk_usage(box).free >> 20,
    )
    if not gpus:
        return machine
    speed = _write_speed(box) if machine.free_mib >= _FREE_MIB else None
    return replace(_with_gpus(machine), disk_mb_per_s=speed)


def gpu_faults(*, gpus: int, torch: bool) -> list[str]:
    """Return what is wrong with the GPUs now, as `faults_of` does."""
    machine = _with_gpus(Machine(cpu="", shm_mib=0, free_mib=0))
    return list(_gpu_faults(machine, gpus=gpus, torch=torch))


def _with_gpus(machine: Machine) -> Machine:
    try:
        gpus = read_gpus()
    except NvidiaSmiError as error:
        return replace(machine, nvidia_smi_fault=str(error))
    return replace(machine, gpus=gpus, driver_cuda=driver_cuda(), torch_cuda=torch_version("cuda"))


def description(machine: Machine) -> Iterator[str]:
    """Describe each part of the machine in a line."""
    yield machine.cpu
    for gpu in machine.gpus:
        memory = "memory unknown" if gpu.memory_mib is None else f"{gpu.memory_mib} MiB"
        yield f"GPU {gpu.index}: {gpu.name}, {memory}, driver {gpu.driver}"
    if machine.driver_cuda:
        torch = f", torch is built for {dotted(machine.torch_cuda)}" if machine.torch_cuda else ""
        yield f"CUDA {dotted(machine.driver_cuda)} by the driver{torch}"
    speed = f", writes {machine.disk_mb_per_s:.0f} MB/s" if machine.disk_mb_per_s else ""
    yield f"/dev/shm {machine.shm_mib} MiB"
    yield f"disk {machine.free_mib} MiB free{speed}"


def faults_of(machine: Machine, *, gpus: int, torch: bool) -> list[str]:
    """Return why the job cannot run on this machine; empty if it can.

    `torch`: its program needs torch, as it is installed now.
    """
    faults = list(_gpu_faults(machine, gpus=gpus, torch=torch))
    if machine.shm_mib < _SHM_MIB and gpus > 1:
        # NCCL passes data between GPUs through it, and crashes with a segmentation fault when it is full.
        faults.append(_SHM_ADVICE)
    if machine.free_mib < _FREE_MIB:
        faults.append(f"less than {_FREE_MIB} MiB of disk are free")
    return faults


def warnings(machine: Machine, *, gpus: int) -> list[str]:
    """Return warnings about a machine on which the job can run."""
    names = sorted({gpu.name for gpu in machine.gpus})
    busy = [gpu for gpu in machine.gpus if (gpu.used_mib or 0) > 1024]
    speed = machine.disk_mb_per_s
    checks = (
        (machine.shm_mib < _SHM_MIB and gpus < 2, _SHM_ADVICE),
        (len(names) > 1, f"the GPUs differ, and the slowest determines the speed: {', '.join(names)}"),
        (speed is not None and speed < 50.0, "the disk is slow: checkpoints will take long"),
        *((True, f"GPU {gpu.index}: other processes use {gpu.used_mib} MiB") for gpu in busy),
    )
    return [text for holds, text in checks if holds]


def _gpu_faults(machine: Machine, *, gpus: int, torch: bool) -> Iterator[str]:
    needs = f"the job needs {how_many(gpus, 'GPU')}"
    if machine.nvidia_smi_fault:
        yield f"{needs}, but nvidia-smi does not work here: {machine.nvidia_smi_fault}"
    elif len(machine.gpus) < gpus:
        yield f"{needs}, this machine has {len(machine.gpus)}"
    for gpu in machine.gpus:
        checks = (
            (gpu.ecc_errors, f"{gpu.ecc_errors} memory errors that could not be corrected"),
            (gpu.remap_pending, "faulty memory needs a reset"),
            (gpu.remap_failed, "faulty memory that cannot be replaced"),
        )
        yield from (f"GPU {gpu.index}: {text}" for bad, text in checks if bad)
    driver, built_for = machine.driver_cuda, machine.torch_cuda
    # Within a major version newer programs run on older drivers (NVIDIA: "CUDA Compatibility").
    if torch and driver and built_for and driver[0] < built_for[0]:
        yield f"the driver supports CUDA {dotted(driver)}, but torch needs {dotted(built_for)}"


def _write_speed(box: Path) -> float:
    """Measure the write speed of one file in MB/s, including the sync."""
    block = os.urandom(1 << 20) * 8  # some disks do not write zeros
    with tempfile.TemporaryFile(dir=box, buffering=0) as file:
        began = time.monotonic()
        while file.tell() < 256_000_000 and time.monotonic() - began < 1.0:
            file.write(block)
        os.fdatasync(file.fileno())
        return file.tell() / 1e6 / (time.monotonic() - began)


def torch_fault(*, gpus: int) -> str:
    """Return why the installed torch cannot train on this number of GPUs; empty if it can."""
    if find_spec("torch") is None:
        return "torch is not installed: take an image that has it"
    if gpus and torch_version("cuda") is None:
        return "torch is built for the CPU only: take an image with CUDA"
    return ""


def version_fault(program: ProgramSpec, torch: Version | None, python: Version) -> str:
    """Return why the program does not support these versions; empty if it does. None: unknown."""
    needs_python = _version(program.python)
    if needs_python is not None and python < needs_python:
        needed = f"Python {program.python} or newer"
        return f"`{program.kind}:` needs {needed}, and this is Python {dotted(python)}"
    oldest, above = map(_version, program.torch or ("", ""))
    if torch is not None and oldest is not None and above is not None and not oldest <= torch < above:
        needed = f"torch {dotted(oldest)} or newer, below {dotted(above)}"
        return f"`{program.kind}:` needs {needed}, and this is torch {dotted(torch)}"
    return ""


def version_fault_here(program: ProgramSpec) -> str:
    """Return why the program does not support the installed versions; empty if it does."""
    return version_fault(program, torch_version(), (sys.version_info.major, sys.version_info.minor))


def skip_reason() -> str:
    """Return why communication cannot be tested before a user's program; empty if it can."""
    if find_spec("torch") is None:
        return "torch is not installed"
    version = torch_version()
    if version is not None and version < OLDEST_TORCH:
        return f"torch {dotted(version)} is older than {dotted(OLDEST_TORCH)}"
    return ""


def torch_version(of: str = "__version__") -> Version | None:
    """Return the version of torch, or that of the `cuda` of its build; None: not installed, or unknown."""
    found = find_spec("torch")
    path = Path(found.origin).with_name("version.py") if found and found.origin else None
    return _version(runpy.run_path(str(path)).get(of)) if path and path.exists() else None


def dotted(version: Version) -> str:
    """Format a version: 2.13."""
    return f"{version[0]}.{version[1]}"


def _version(text: str | None) -> Version | None:
    found = re.match(r"(\d+)(?:\.(\d+))?", text or "")
    return (int(found[1]), int(found[2] or 0)) if found else None
