"""Offer check: compares what a provider says of a machine and its traffic with what is measured. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vastrun.launcher.core import BoxStatus, Instance, Offer, Run
from vastrun.launcher.core.gpus import is_same_name, may_be

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec, Resources

COMMAND = Path(__file__).with_name("offer_check.sh").read_text(encoding="utf-8")
"""Script for any POSIX shell; `read_box` parses its output."""

_SLACK = 0.9
"""Share of the offered size that is enough: drivers and file systems keep some memory and disk."""
_MAX_IDLE_GB, _MAX_IDLE_SHARE = 1.1, 0.05
"""Max. GPU memory in use before a job starts, for the driver and a display; the larger value counts."""
_MAX_GPU_GB = 10_000.0
"""Max. memory of a GPU in GB; a larger number was misread."""
PYPI_FILE = (
    "https://files.pythonhosted.org/packages/65/fb/2b23769462b34398d9326081fad5655198fcf18966fcb1f1e49db44fbf31/"
    "numpy-2.3.5-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl"
)
"""A file of 17 MB that never changes, on the server that most set-up commands use."""
TIMEOUT_S = 60.0
"""Timeout in seconds, longer than `download_check.sh` ever takes."""
_SCRIPT = Path(__file__).with_name("download_check.sh")
_MIN_BYTES, _MAX_BYTES = 1 << 16, 16_000_000
_SECONDS = 3.0
"""Seconds for which a download at the requested speed takes."""
_SHARE = 0.5
"""Share of the requested speed that is enough: a short download does not reach full speed."""
GB = 1024**3
"""Bytes of a GB of traffic: Vast's price per TB is 1024 times that per GB."""
_LINE_SLACK = 2.0
"""Factor for a line that is faster than listed: listed speeds are of one measurement."""
_LATE_S = 10.0
"""Seconds for a rent that was noted late: its time is limited by the provider's, which is rounded."""
_UNKNOWN_MBPS = 10_000.0
"""Speed of a line in Mbit/s where none is listed."""
_MIN_SHARE = 0.01
"""Min. share of vastrun's own traffic that a counter shows: the next smaller unit would be 0.001 of it."""
_MIN_GB = 0.001


@dataclass(frozen=True, kw_only=True)
class BoxHardware:
    """Hardware of a machine by its own tools. 0: it could not be read."""

    disk_gb: float = 0.0
    memory_gb: float = 0.0
    """Memory in GB; the container's limit where that is lower."""
    gpus: tuple[tuple[str, float], ...] = ()
    """Name and memory in GB of each GPU."""
    gpu_use: tuple[tuple[float, float], ...] = ()
    """Memory in use and total memory of each GPU, in GB; (0, 0) where it could not be read."""
    cuda: float = 0.0
    """Newest CUDA version that the driver supports."""


def read_box(text: str) -> BoxHardware:
    """Parse the output of `COMMAND`."""
    facts = [line.split(None, 1) for line in text.splitlines() if " " in line.strip()]
    memory = [_number(value) * 1024 / 1e9 for name, value in facts if name == "memory_kb"]
    memory += [_number(value) / 1e9 for name, value in facts if name == "memory_bytes"]
    gpus = [value.partition(",") for name, value in facts if name == "gpu"]
    return BoxHardware(
        disk_gb=max((_number(value) * 1024 / 1e9 for name, value in facts if name == "disk_kb"), default=0.0),
        memory_gb=min((gb for gb in memory if gb > 0), default=0.0),
        gpus=tuple((name.strip(), _number(mib) / 1000) for mib, _, name in gpus),
        gpu_use=tuple(_use_of(value) for name, value in facts if name == "gpu_used"),
        cuda=max((_number(value) for name, value in facts if name == "cuda"), default=0.0),
    )


def _use_of(value: str) -> tuple[float, float]:
    """Parse memory in use and total memory, in GB; (0, 0) where the values make no sense."""
    used, _, total = value.partition(",")
    used_gb, total_gb = _number(used) / 1000, _number(total) / 1000
    return (used_gb, total_gb) if 0 <= used_gb <= total_gb <= _MAX_GPU_GB else (0.0, 0.0)


def gpus_in_use(box: BoxHardware, offer: Offer) -> str:
    """Describe the GPUs whose memory other programs use before the job starts; empty: none.

    A box with more GPUs than were offered shares its machine: which of them are the job's is unknown.
    """
    if len(box.gpu_use) > offer.gpus:
        return ""
    return ", ".join(
        f"GPU {index}: {used:.1f} of {total:.1f} GB in use by other programs"
        for index, (used, total) in enumerate(box.gpu_use)
        if used > max(_MAX_IDLE_GB, total * _MAX_IDLE_SHARE)
    )


def listing_mismatch(machine: Instance, offer: Offer, requested: Resources) -> str:
    """Describe how the machine in the provider's list is worse than its offer; empty when it is not."""
    name, known, gpus, price = machine.gpu_name, offer.gpu_name, machine.gpus, machine.usd_per_hour
    checks = (
        (not name or not known or is_same_name(name, known), f"{name} instead of {known}"),
        (gpus == 0 or gpus >= offer.gpus, f"{gpus} of {offer.gpus} GPUs"),
        _room_check(machine.disk_gb, requested.disk_gb, "disk"),
        (machine.cuda == 0 or machine.cuda >= offer.cuda, f"CUDA {machine.cuda:g} instead of {offer.cuda:g}"),
        (price <= offer.usd_per_hour * 1.02, f"${price:.3f}/h instead of ${offer.usd_per_hour:.3f}/h"),
    )
    return _listed(checks)


def box_mismatch(box: BoxHardware, offer: Offer, requested: Resources) -> str:
    """Describe how the box is worse than its offer, by its own tools; empty when it is not."""
    checks = [
        _room_check(box.disk_gb, requested.disk_gb, "disk"),
        _room_check(box.memory_gb, requested.memory_gb, "memory"),
    ]
    if requested.gpus > 0 and not box.gpus:
        checks += [(False, "nvidia-smi shows no GPU")]
    elif requested.gpus > 0:
        cuda, min_gb = max(offer.cuda, requested.cuda), min(gb for _, gb in box.gpus)
        other = next((name for name, _ in box.gpus if not may_be(offer.gpu_name or "", name)), "")
        gpu_text = f"{min_gb:.0f} GB a GPU instead of {offer.gpu_memory_gb:.0f}"
        checks += [
            (len(box.gpus) >= offer.gpus, f"{len(box.gpus)} of {offer.gpus} GPUs"),
            (not other, f"{other} instead of {offer.gpu_name}"),
            (_holds(min_gb, offer.gpu_memory_gb), gpu_text),
            # 0: its nvidia-smi does not say; that is no reason to give the machine back.
            (box.cuda == 0 or box.cuda >= cuda, f"CUDA {box.cuda:g} instead of {cuda:g}"),
        ]
    return _listed(checks)


def _room_check(shown_gb: float, requested_gb: float, what: str) -> tuple[bool, str]:
    return _holds(shown_gb, requested_gb), f"{shown_gb:.0f} GB {what} instead of {requested_gb:.0f}"


def _holds(shown: float, promised: float) -> bool:
    """Return whether the value is large enough, or could not be read."""
    return shown == 0 or shown >= promised * _SLACK


def _listed(checks: Iterable[tuple[bool, str]]) -> str:
    return ", ".join(text for holds, text in checks if not holds)


def _number(text: str) -> float:
    """Return the number, or 0 for other text like `max` (a container without a limit)."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def is_needed(spec: JobSpec) -> bool:
    """Return whether the job requests a speed, or does something that usually needs the internet."""
    urls = (spec.checkpoints.push, spec.checkpoints.start_from)
    is_remote = any(url and not url.startswith(("file://", "memory://")) for url in urls)
    return bool(spec.resources.down_mbps > 0 or spec.setup or spec.data or is_remote)


def command(requested: Resources, url: str = PYPI_FILE) -> str:
    """Return the command that measures the download of a URL on the box, in any POSIX shell; `fault` parses
    its output."""
    script = _SCRIPT.read_text(encoding="utf-8")
    return f"set -- {shlex.quote(url)} {_test_bytes(requested)}\n{script}"


def fault(printed: str, requested: Resources) -> str:
    """Describe how the machine's download is too slow for the job; empty when it is not, or not known."""
    words = next((line.split() for line in printed.splitlines() if line.startswith("down ")), [])
    try:
        size, began, ended = (float(word) for word in words[1:])
    except ValueError:
        return ""
    if size == 0:
        return f"it cannot download from {urlsplit(PYPI_FILE).hostname}"
    seconds = max(0.01, ended - began)
    mbps = size * 8 / 1e6 / seconds
    # A short answer is an error page: the line works, and its speed is not known.
    judged = size >= _test_bytes(requested) or seconds >= _SECONDS
    if judged and mbps < requested.down_mbps * _SHARE:
        return f"{mbps:.0f} Mbit/s down instead of {requested.down_mbps:g}"
    return ""


def _test_bytes(requested: Resources) -> int:
    fitting = int(requested.down_mbps * 1e6 / 8 * _SECONDS)
    return max(_MIN_BYTES, min(fitting, _MAX_BYTES))


@dataclass(kw_only=True)
class TrafficMeasure:
    """GB into a machine and out of it by vastrun's own measure, as far as this launcher saw it."""

    down_gb: float = 0.0
    up_gb: float = 0.0
    """GB through vastrun's own connections: never more than was billed."""
    box_down_gb: float = 0.0
    box_up_gb: float = 0.0
    """GB through the interfaces of the machine, as its box reports them."""

    def sent(self, size: int) -> None:
        """Count bytes that were sent to the machine."""
        self.down_gb += size / GB

    def received(self, size: int) -> None:
        """Count bytes that came from the machine."""
        self.up_gb += size / GB

    def observe(self, status: BoxStatus) -> None:
        """Note the counters of the box's interfaces."""
        self.box_down_gb, self.box_up_gb = status.received_mb / 1024, status.sent_mb / 1024


def counter_fault(machine: Instance, own: TrafficMeasure, rented_s: float) -> str:
    """Describe why the provider's counter cannot be right; empty when it can. `rented_s`: age in seconds."""
    directions = (
        ("into", machine.down_gb, own.down_gb, machine.down_mbps),
        ("out of", machine.up_gb, own.up_gb, machine.up_mbps),
    )
    for way, counter_gb, own_gb, mbps in directions:
        max_gb = _LINE_SLACK * (mbps or _UNKNOWN_MBPS) / 8000 * (rented_s + _LATE_S)
        reads = f"the provider's counter of the traffic {way} the machine reads {counter_gb:,.3g} GB"
        if counter_gb > max_gb:
            return f"{reads}, more than the {max_gb:,.3g} GB that its line can have carried since the rent"
        if own_gb >= _MIN_GB and 0 < counter_gb < own_gb * _MIN_SHARE:
            return f"{reads}, and vastrun itself transferred {own_gb:,.3g} GB"
    return ""


def counted(machine: Instance, own: TrafficMeasure, *, is_doubted: bool) -> Instance:
    """Return the machine with the traffic that is charged: the counter's, unless it is doubted."""
    if not (machine.extras.down_usd_per_gb or machine.extras.up_usd_per_gb):
        return machine
    counter = (0.0, 0.0) if is_doubted else (machine.down_gb, machine.up_gb)
    return replace(machine, down_gb=max(counter[0], own.down_gb), up_gb=max(counter[1], own.up_gb))


def confirmed(run: Run, own: TrafficMeasure) -> Run:
    """Return the run without the traffic that only its provider's counter claims: no limit acts on that."""
    meter = run.meter
    down_gb = min(meter.down_gb, max(own.down_gb, own.box_down_gb))
    up_gb = min(meter.up_gb, max(own.up_gb, own.box_up_gb))
    if (down_gb, up_gb) == (meter.down_gb, meter.up_gb):
        return run
    return replace(run, meter=replace(meter, down_gb=down_gb, up_gb=up_gb))
