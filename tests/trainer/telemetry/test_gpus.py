"""GPUs under watch, with an NVML that answers as NVIDIA's does."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from tests.waiting import eventually
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.telemetry.figures import uuids_in_use
from vastrun.trainer.telemetry.gpus import GpuFigures, GpuWatch, Sample, figures_of

NVML = """
from types import SimpleNamespace

NVML_TEMPERATURE_GPU = 0


class NVMLError(Exception):
    pass


def nvmlInit(): pass
def nvmlDeviceGetHandleByUUID(uuid): return {"GPU-a": 0, "GPU-b": 1}[uuid]
def nvmlDeviceGetUtilizationRates(gpu): return SimpleNamespace(gpu=(90, 70)[gpu])
def nvmlDeviceGetMemoryInfo(gpu): return SimpleNamespace(used=(1 << 30, 3 << 30)[gpu])
def nvmlDeviceGetTemperature(gpu, sensor): return (61, 88)[gpu]
def nvmlDeviceGetCurrentClocksEventReasons(gpu): return (0x4, 0x20)[gpu]


def nvmlDeviceGetPowerUsage(gpu):
    raise NVMLError("Not Supported")
"""


def answer_with(monkeypatch: pytest.MonkeyPatch, text: str) -> ModuleType:
    """NVIDIA's package is this one from now on."""
    module = ModuleType("pynvml")
    exec(text, module.__dict__)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_what_the_gpus_do_is_told_and_a_hot_one_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_with(monkeypatch, NVML)
    watch, seen = GpuWatch(["GPU-a", "GPU-b"]), []
    eventually(lambda: seen.append(watch.look()) or seen[-1] is not None)
    watch.end()
    assert seen[-1] == GpuFigures(
        gpu_load=pytest.approx(0.8),
        gpu_memory_mib=3072,
        gpu_power_w=None,
        gpu_temperature_c=88,
        gpu_slowed=1.0,
        each={
            "gpu0_load": pytest.approx(0.9),
            "gpu0_memory_mib": 1024,
            "gpu0_temperature_c": 61,
            "gpu1_load": pytest.approx(0.7),
            "gpu1_memory_mib": 3072,
            "gpu1_temperature_c": 88,
        },
    )
    assert capsys.readouterr().out == "GPU 1 is slowed down by heat\n"


def test_without_nvml_it_is_said_once_and_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_with(monkeypatch, NVML + "\ndef nvmlInit(): raise NVMLError('Driver Not Loaded')\n")
    watch = GpuWatch(["GPU-a"])
    watch.end()
    assert watch.look() is None
    assert capsys.readouterr().out == "GPUs are not watched: Driver Not Loaded\n"


def test_nvidia_s_own_package_has_all_that_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    asked = {name for name in vars(answer_with(monkeypatch, NVML)) if name.lower().startswith("nvml")}
    assert len(asked) == 9
    assert asked <= set(vars(pynvml))


def test_power_is_of_all_gpus_together() -> None:
    sample = Sample(load=0.5, memory_mib=1.0, power_w=300.0, temperature_c=50.0)
    together = figures_of([[sample, sample], [sample, sample]])
    assert together.gpu_power_w == 600
    assert together.each["gpu0_power_w"] == together.each["gpu1_power_w"] == 300


def test_of_a_single_gpu_nothing_is_told_twice() -> None:
    sample = Sample(load=0.5, memory_mib=1.0, power_w=300.0, temperature_c=50.0)
    assert figures_of([[sample], [sample]]).each == {}


def test_the_gpus_that_are_watched_are_those_of_the_ranks_and_not_the_idle_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: SimpleNamespace(uuid="abcd"[gpu]))
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "VASTRUN_BOX": str(tmp_path)}
    for name, value in (variables | {"LOCAL_WORLD_SIZE": "2"}).items():
        monkeypatch.setenv(name, value)
    assert uuids_in_use(Rank.of_environment()) == ["GPU-a", "GPU-b"]
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert uuids_in_use(Rank.of_environment()) == ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]
