"""Every check on the GPUs of this computer, and on its CPU, where it shows that its own code is right."""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.gpu.check import Place, State
from tests.gpu.checks import CHECKS
from tests.gpu.running import run_one
from vastrun.onstart.supervision.launch import healthy_gpus

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(900)]

TRIED_BY = {"bf16": "fp32", "whole": "blocks", "sharded-loop": "loop"}
"""Checks that do on a CPU what another one does."""
_ON_A_BUSY_COMPUTER_S = 600.0


@pytest.mark.parametrize("name", [name for name in CHECKS if name not in TRIED_BY])
def test_a_check_holds_on_a_cpu(name: str, tmp_path: Path) -> None:
    check, place = CHECKS[name], Place(gpus=0)
    if why := check.lacks(place):
        pytest.skip(why)
    log = tmp_path / "log.txt"
    result = run_one(name, check, place, within_s=_ON_A_BUSY_COMPUTER_S, log=log)
    assert (result.state, result.why) == (State.PASSED, ""), log.read_text()[-3000:]


@pytest.mark.gpu
@pytest.mark.parametrize("name", CHECKS)
def test_a_check_holds_on_gpus(name: str, tmp_path: Path) -> None:
    check, place = CHECKS[name], Place(gpus=_gpus())
    if not place.gpus:
        pytest.skip("there is no NVIDIA GPU; with one: make gpu")
    if why := check.lacks(place):
        pytest.skip(why)
    log = tmp_path / "log.txt"
    with _alone():
        result = run_one(name, check, place, within_s=check.limit_s, log=log)
    assert (result.state, result.why) == (State.PASSED, ""), log.read_text()[-3000:]


@cache
def _gpus() -> int:
    return len(healthy_gpus() or ())


@contextmanager
def _alone() -> Iterator[None]:
    """Other workers of pytest wait: two checks would share memory and time of a GPU."""
    with (Path(tempfile.gettempdir()) / "vastrun-gpu.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
