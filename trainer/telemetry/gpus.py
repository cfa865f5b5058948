"""GPU watch: read load, memory, power, temperature and slow clocks from NVML in a separate thread."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from types import ModuleType
from typing import Any

_SLOWED_BY = {0x20: "heat", 0x40: "heat", 0x80: "its power supply", 0x08: "its hardware"}
"""NVML's `ClocksEventReason`s that indicate a fault; a GPU at its power limit has none."""


@dataclass(frozen=True, kw_only=True)
class GpuFigures:
    """Figures of all GPUs of the job since the last read. None: not supported by this GPU."""

    gpu_load: float | None
    """Mean share of the time in which a kernel ran."""
    gpu_memory_mib: float | None
    """Memory in use on the fullest GPU."""
    gpu_power_w: float | None
    """Power of all GPUs together."""
    gpu_temperature_c: float | None
    """Temperature of the hottest GPU."""
    gpu_slowed: float | None
    """Share of the time in which a fault slowed at least one GPU down."""
    each: dict[str, float] = field(default_factory=dict)
    """Load, memory, power and temperature of each of several GPUs, by name: `gpu0_load`."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One reading of one GPU."""

    load: float | None
    memory_mib: float | None
    power_w: float | None
    temperature_c: float | None
    slowed_by: str | None = None


class GpuWatch:
    """Reads the GPUs once a second from its creation on. Without NVML it prints a line and reads nothing."""

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = uuids
        self._rounds: list[list[Sample]] = []
        self._printed: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nvml", daemon=True)
        self._thread.start()

    def look(self) -> GpuFigures | None:
        """Return the figures since the last call; None: no reading."""
        rounds, self._rounds = self._rounds, []
        return figures_of(rounds) if rounds else None

    def end(self) -> None:
        self._over.set()
        self._thread.join(timeout=5.0)  # a driver that hangs must not block the rank

    def _watch(self) -> None:
        try:
            import pynvml
        except ImportError:
            print("GPUs are not watched: the package nvidia-ml-py is not installed", flush=True)
            return
        try:
            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in self._uuids]
        except pynvml.NVMLError as error:
            print(f"GPUs are not watched: {error}", flush=True)
            return
        while True:
            self._rounds.append([self._sample(pynvml, number, gpu) for number, gpu in enumerate(handles)])
            if self._over.wait(timeout=1.0):
                return

    def _sample(self, nvml: ModuleType, number: int, gpu: Any) -> Sample:
        sample = read_sample(nvml, gpu)
        if sample.slowed_by:
            text = f"GPU {number} is slowed down by {sample.slowed_by}"
            if text not in self._printed:
                print(text, flush=True)
            self._printed.add(text)
        return sample


def read_sample(nvml: ModuleType, gpu: Any) -> Sample:
    """Read the current values of one GPU."""

    def read(name: str, *arguments: Any) -> Any:
        # Not every GPU supports every value; a missing one does not affect the others.
        try:
            return getattr(nvml, name)(gpu, *arguments)
        except nvml.NVMLError:
            return None

    load = read("nvmlDeviceGetUtilizationRates")
    memory = read("nvmlDeviceGetMemoryInfo")
    power_mw = read("nvmlDeviceGetPowerUsage")
    reasons = read("nvmlDeviceGetCurrentClocksEventReasons") or 0
    return Sample(
        load=None if load is None else load.gpu / 100,
        memory_mib=None if memory is None else memory.used / (1 << 20),
        power_w=None if power_mw is None else power_mw / 1000,
        temperature_c=read("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        slowed_by=next((name for bit, name in _SLOWED_BY.items() if reasons & bit), None),
    )


def figures_of(rounds: Sequence[Sequence[Sample]]) -> GpuFigures:
    """Aggregate the rounds; each has a reading of all GPUs."""
    samples = [sample for round_samples in rounds for sample in round_samples]
    loads, powers = _known(samples, "load"), _known(samples, "power_w")
    return GpuFigures(
        gpu_load=fmean(loads) if loads else None,
        gpu_memory_mib=max(_known(samples, "memory_mib"), default=None),
        # The sum over all GPUs, averaged over the rounds.
        gpu_power_w=sum(powers) / len(rounds) if powers else None,
        gpu_temperature_c=max(_known(samples, "temperature_c"), default=None),
        gpu_slowed=fmean(any(sample.slowed_by for sample in round_samples) for round_samples in rounds),
        each=dict(_of_each(rounds)),
    )


_EACH: Mapping[str, Callable[[list[float]], float]] = {
    "load": fmean,
    "memory_mib": max,
    "power_w": fmean,
    "temperature_c": max,
}
"""The figures of each GPU, with the function that aggregates its samples."""


def _of_each(rounds: Sequence[Sequence[Sample]]) -> Iterator[tuple[str, float]]:
    """Yield the figures of each GPU by name; none for a single GPU, whose figures are those of all."""
    gpus = list(zip(*rounds, strict=True))
    for number, samples in enumerate(gpus if len(gpus) > 1 else ()):
        for name, summed in _EACH.items():
            if values := _known(samples, name):
                yield f"gpu{number}_{name}", summed(values)


def _known(samples: Sequence[Sample], name: str) -> list[float]:
    return [value for sample in samples if (value := getattr(sample, name)) is not None]
