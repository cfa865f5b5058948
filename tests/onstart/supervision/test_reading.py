"""What is measured of a machine once a rank has failed, where no fault of it can be produced here."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.emulators.box import Graphics
from tests.emulators.nvidia_smi import nvidia_smi
from tests.onstart.supervision.launches import read_job
from tests.onstart.supervision.test_uncaught import STARTS, ran
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.onstart.supervision.reading import MachineReadings

OLD = b"3,1,1,-;NVRM: Xid (PCI:0000:3b:00): 13, of an earlier run\n"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python, GPU has fallen off the bus."
KILL = "oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=7,uid=0"


def test_of_the_kernels_log_the_first_xids_and_kills_since_the_start_are_told(box: Path) -> None:
    (box / "log").write_bytes(OLD)
    readings = MachineReadings(box, read_job(), log=str(box / "log"))
    later = f"3,2,2,-;{XID}\n SUBSYSTEM=pci\n6,3,3,-;eth0: link up\n4,4,4,-;{KILL}\n".encode()
    with (box / "log").open("ab") as file:
        file.write(later + b"3,1,1,-;NVRM: Xid \xff" + b"x" * 5000 + b"\n" + OLD * 99)
    found = readings.take()
    assert found.kernel_log is not None
    assert found.kernel_log[:2] == (XID, KILL)
    assert (len(found.kernel_log), max(map(len, found.kernel_log))) == (16, 1000)


NVML = """
#include <stdint.h>
typedef struct { void *device; unsigned long long type, xid; } Event;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlEventSetCreate(void **set) { *set = (void *)7; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned gpu, void **device)
{ *device = (void *)((uintptr_t)1 << 40 | gpu); return 0; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set)
{ return types == 8 && set == (void *)7 ? 0 : 2; }
int nvmlEventSetWait(void *set, Event *event, unsigned ms)
{ static int left = 2; if (!left) return 10; event->xid = 80 - left--;
return nvmlDeviceGetHandleByIndex_v2(1, &event->device); }
"""
"""Has two GPUs, of which GPU 1 reports two XIDs."""


@pytest.mark.needs("g++")
def test_where_the_kernels_log_is_not_shown_nvml_tells_the_xids(box: Path) -> None:
    (box / "nvml.c").write_text(NVML)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", box / "nvml.so", box / "nvml.c"], check=True)
    readings = MachineReadings(box, read_job(gpus=1), log="/no/such/log", nvml=str(box / "nvml.so"))
    assert eventually(lambda: readings.take().kernel_log) == ("XID 78 on GPU 1", "XID 79 on GPU 1")


def test_a_kill_for_lack_of_memory_is_dated_once(box: Path) -> None:
    readings = MachineReadings(box, read_job())
    before = readings.take()
    assert (before.memory_killed, before.memory_killed_at) == (False, None)
    (box / layout.MEMORY_EVENTS).write_text("oom_kill 1\n")
    first, again = readings.take(), readings.take()
    assert first.memory_killed
    assert first.memory_killed_at == again.memory_killed_at is not None


@pytest.mark.parametrize("log", ["/no/such/log", "/"])
def test_a_kernels_log_that_is_not_shown_is_normal(box: Path, log: str) -> None:
    assert MachineReadings(box, read_job(), log=log).take().kernel_log is None


def test_the_limits_of_a_program_are_told_beside_what_it_used(box: Path) -> None:
    ran(
        box,
        STARTS["itself"],
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
        "resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 16, 1 << 16))\n"
        "files = []\n"
        "while True: files.append(open(__file__))",
    )
    reading = MachineReadings(box, read_job(), log="/dev/null").take()
    (limits,) = (line for line in reading.limits if "files" in line)
    assert limits.endswith(": 20 of 20 open files, 0 of 64 KiB of locked memory")


def test_a_gpu_that_no_longer_answers_does_not_hold_the_reading(
    box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, hung = box / "bin" / "nvidia-smi", box / "hung"
    tool.parent.mkdir()
    graphics = nvidia_smi(Graphics(names=["RTX 4090"], memory_mb=24564, driver="580.95.05", cuda=13.0))
    tool.write_text(graphics.replace("\n", f"\n[ ! -e {hung} ] || exec sleep 40\n", 1))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    readings = MachineReadings(box, read_job(gpus=1))
    assert eventually(lambda: readings.take().gpu_faults == ())
    hung.touch()
    assert readings.take().gpu_faults is None
