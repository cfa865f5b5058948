"""How a rank ends: each cause with its reason file and exit code, and a stop that cannot wait for ever."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from tests.trainer.conftest import Box
from tests.waiting import LONGEST_S, eventually
from vastrun.onstart.supervision.failure_causes import Link
from vastrun.trainer.distributed.exit import reason_of
from vastrun.trainer.errors import DeviceError, WorkerDiedError

GRACE_S = 6.0
"""Of a rank that must not be ended: enough to leave on a busy computer."""

RANK = """
import sys, time
from vastrun.trainer.errors import DataError
from vastrun.trainer.distributed.exit import RankExit
from vastrun.trainer.errors import ConfigError
from vastrun.trainer.distributed.rank import Heartbeat
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.distributed.signals import StopSignal

heart = Heartbeat.of_this_rank()
rank = Rank.of_environment()
with RankExit(rank.box, rank.rank, heart) as rank_exit:
    stop = StopSignal.watch(rank_exit.abort, min_s=0.1, grace_s={grace_s}, saving_grace_s=60.0)
    heart.beat(7, "forward")
{body}
"""


def start(box: Box, body: str, *, grace_s: float = 0.2) -> subprocess.Popen[str]:
    variables = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "4", "VASTRUN_BOX": str(box.path)}
    script = RANK.format(body="\n".join(f"    {line}" for line in body.splitlines()), grace_s=grace_s)
    return subprocess.Popen(
        [sys.executable, "-c", script], env=os.environ | variables, text=True, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize(
    ("body", "reason", "exit_code", "exception"),
    [
        ("rank_exit.reason = 'finished'", "finished", 0, None),
        ("rank_exit.reason = 'stopped'", "stopped", 143, None),
        ("1 / 0", "error", 1, "ZeroDivisionError: division by zero"),
        ("raise DataError('no file')", "data", 1, "DataError: no file"),
        ("raise MemoryError", "oom", 76, "MemoryError"),
        (
            "raise OSError(28, 'No space left on device')",
            "disk",
            1,
            "OSError: [Errno 28] No space left on device",
        ),
        ("sys.exit(0)", "error", 1, "SystemExit: 0"),
        ("raise KeyboardInterrupt", "error", 1, "KeyboardInterrupt"),
    ],
)
def test_an_end_is_written_down_and_the_exit_code_says_the_same(
    box: Box, body: str, reason: str, exit_code: int, exception: str | None
) -> None:
    process = start(box, body)
    _, stderr = process.communicate()
    record = box.reason(3)
    assert process.returncode == record["exit_code"] == exit_code
    assert (record["reason"], record["step"], record["exception"]) == (reason, 7, exception)
    assert (record["traceback"] is None) == (exception is None)
    assert (exception or "") in stderr


@pytest.mark.parametrize(("elsewhere", "told"), [(False, "ConfigError: no such thing\n"), (True, "")])
def test_errors_of_a_job_are_one_line_by_one_rank(box: Box, elsewhere: bool, told: str) -> None:
    process = start(box, f"raise ConfigError('no such thing', reported_elsewhere={elsewhere})")
    _, stderr = process.communicate()
    assert (process.returncode, stderr) == (1, told)
    assert box.reason(3)["exception"] == "ConfigError: no such thing"


def test_a_rank_that_cannot_stop_in_time_is_ended(box: Box) -> None:
    process = start(box, "while True: time.sleep(60)")
    eventually(lambda: (box.path / "run/heartbeat/rank-3").exists() and "forward" in beat_of(box))
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 143
    assert box.reason(3)["reason"] == "stopped"
    assert (
        box.reason(3)["exception"] == "StoppedWithoutSaveError: asked to stop in step 7: left without saving"
    )
    assert "left without saving" in stderr


@pytest.mark.parametrize(("step_s", "saves"), [("None", True), (str(GRACE_S), True), ("0.0", False)])
def test_a_rank_whose_steps_take_long_has_the_time_of_two_to_save(box: Box, step_s: str, saves: bool) -> None:
    body = f"""
stop.step_s = {step_s}
heart.beat(8, 'backward')
while not stop.asked: time.sleep(0.01)
time.sleep({0.4 * GRACE_S})
rank_exit.reason = 'stopped'
"""
    process = start(box, body, grace_s=2 * GRACE_S)
    eventually(lambda: (box.path / "run/heartbeat/rank-3").exists() and "backward" in beat_of(box))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LONGEST_S)
    assert (box.reason(3)["exception"] is None) == saves


def test_a_rank_that_is_saving_gets_more_time_and_then_the_usual_one_to_leave(box: Box) -> None:
    body = f"""
with stop.saving():
    heart.beat(8, 'checkpoint')
    while not stop.asked: time.sleep(0.01)
    time.sleep({1.1 * GRACE_S})
time.sleep({0.05 * GRACE_S})
rank_exit.reason = 'stopped'
"""
    process = start(box, body, grace_s=GRACE_S)
    eventually(lambda: (box.path / "run/heartbeat/rank-3").exists() and "checkpoint" in beat_of(box))
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 143
    assert "without saving" not in stderr


def test_errors_of_torch_have_their_reasons() -> None:
    assert reason_of(torch.OutOfMemoryError("CUDA out of memory")) == "oom"
    assert reason_of(torch.distributed.DistBackendError("NCCL error")) == "communication"
    assert (
        reason_of(RuntimeError("[/pytorch/gloo/transport/tcp/pair.cc:547] Connection closed"))
        == "communication"
    )
    assert reason_of(torch.AcceleratorError("CUDA error: out of memory")) == "oom"
    assert reason_of(torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered")) == "device"
    assert reason_of(torch.AcceleratorError("CUDA error: device-side assert triggered")) == "error"
    assert reason_of(DeviceError("GPU 3 is needed, but torch sees only 2 GPUs")) == "device"
    assert reason_of(RuntimeError("shapes do not fit")) == "error"


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuFFT error: CUFFT_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "[enforce fail at alloc_cpu.cpp:119] . DefaultCPUAllocator: can't allocate memory: you tried to ...",
    ],
)
def test_a_library_without_room_is_out_of_memory_for_ranks_and_programs_alike(text: str) -> None:
    assert reason_of(RuntimeError(text)) == "oom"
    link = Link(names=("RuntimeError",), errno=None, text=f"RuntimeError: {text}")
    assert link.reason == "oom"


def test_a_worker_that_a_signal_ended_is_no_fault_of_the_data() -> None:
    assert reason_of(WorkerDiedError("loader worker 0 (pid 7) was ended by SIGKILL")) == "signal"


def test_memory_that_the_cpu_does_not_have_is_out_of_memory() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert reason_of(caught.value) == "oom"


def beat_of(box: Box) -> str:
    return (box.path / "run/heartbeat/rank-3").read_text()
