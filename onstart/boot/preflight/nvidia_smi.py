"""GPUs: list them with `nvidia-smi`. Standard library only."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

_BASIC = ("index", "name", "memory.total", "driver_version")
# A driver that does not know one of the fields rejects the whole query: these are queried separately.
_HEALTH = ("index", "pci.bus_id", "memory.used", "ecc.errors.uncorrected.volatile.total")
_REMAPPED = ("gpu_bus_id", "remapped_rows.pending", "remapped_rows.failure")
_CUDA = re.compile(r"CUDA[A-Z ]{0,40} Version: *(\d+)\.(\d+)")


class NvidiaSmiError(Exception):
    """nvidia-smi is not installed, or does not work."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU. None: unknown."""

    index: int
    name: str
    memory_mib: int | None
    driver: str
    used_mib: int | None = None
    ecc_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    remap_pending: bool = False
    """True when faulty memory rows need a reset to be replaced."""
    remap_failed: bool = False
    """True when faulty memory rows cannot be replaced."""


def read_gpus() -> tuple[Gpu, ...]:
    """List the GPUs of this machine. Raises NvidiaSmiError."""
    rows = _rows("--query-gpu", _BASIC)
    health = {index: rest for index, *rest in rows_if_known("--query-gpu", _HEALTH)}
    remapped = {bus: rest for bus, *rest in rows_if_known("--query-remapped-rows", _REMAPPED)}
    return tuple(
        Gpu(
            index=int(index),
            name=name,
            memory_mib=number(memory),
            driver=driver,
            used_mib=number(used),
            ecc_errors=number(errors),
            remap_pending=_is_set(pending),
            remap_failed=_is_set(failed),
        )
        for index, name, memory, driver in rows
        for bus, used, errors in [health.get(index, ("", "", ""))]
        for pending, failed in [remapped.get(bus, ("", ""))]
    )


def driver_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA that the driver supports; None if unknown."""
    try:
        found = _CUDA.search(_run())
    except NvidiaSmiError:
        return None
    return (int(found[1]), int(found[2])) if found else None


def _rows(query: str, fields: tuple[str, ...]) -> list[list[str]]:
    text = _run(f"{query}={','.join(fields)}", "--format=csv,noheader,nounits")
    rows = [[value.strip() for value in line.split(",")] for line in text.splitlines() if line.strip()]
    return [row for row in rows if len(row) == len(fields)]


def rows_if_known(query: str, fields: tuple[str, ...]) -> list[list[str]]:
    """Return a row for each GPU; none where the driver does not know a field or nvidia-smi does not work."""
    try:
        return _rows(query, fields)
    except NvidiaSmiError:
        return []


def _run(*arguments: str) -> str:
    try:
        done = subprocess.run(
            # A driver that takes longer is stuck.
            ["nvidia-smi", *arguments],
            capture_output=True,
            text=True,
            timeout=30.0,
            check=False,
        )
    except FileNotFoundError:
        raise NvidiaSmiError("not installed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NvidiaSmiError(str(error)) from error
    if done.returncode:
        output = (done.stdout + done.stderr).strip().splitlines()
        raise NvidiaSmiError(output[-1] if output else f"exit code {done.returncode}")
    return done.stdout


def number(text: str) -> int | None:
    """Parse a number; None for `[N/A]` and similar values."""
    digits = text.split(" ")[0]
    return int(digits) if digits.isdigit() else None


def _is_set(text: str) -> bool:
    """Parse a flag: drivers write a word or a number."""
    return text.lower() == "yes" or (number(text) or 0) > 0
