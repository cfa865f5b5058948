"""Every check has a process and a limit of its own; without a GPU nothing is done, in one line."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.gpu.check import Broken, Check, Figure, Place, Result, Seen, State
from tests.gpu.ranks import together
from tests.gpu.results import read
from tests.gpu.running import run_all, run_one
from tests.torch_builds import torch_built_for
from tests.waiting import eventually, has_ended

CPU = Place(gpus=0)


def _holds(place: Place, folder: Path) -> Seen:
    print("heard")
    return Seen(text=f"on {place.device}", figures=[Figure(name="all", value=1.0)])


def _is_broken(place: Place, folder: Path) -> Seen:
    raise Broken("the losses are apart")


def _raises(place: Place, folder: Path) -> Seen:
    raise KeyError("not thought of")


def _leaves(place: Place, folder: Path) -> Seen:
    sys.exit("a program failed")


def _dies(place: Place, folder: Path) -> Seen:
    os.kill(os.getpid(), 11)
    return Seen()


def _rank_fails(place: Place, folder: Path) -> Seen:
    together(place, _fail_on_rank_1, 2)
    return Seen()


def _fail_on_rank_1(ranks: object) -> None:
    if ranks.rank.rank:  # type: ignore[attr-defined]
        raise ValueError("injected")
    ranks.wait_for_all()  # type: ignore[attr-defined]


def _one(run: object, tmp_path: Path, within_s: float = 120.0) -> Result:
    check = Check(text="it holds", run=run, expected_s=1)  # type: ignore[arg-type]
    return run_one("one", check, CPU, within_s=within_s, log=tmp_path / "log.txt")


@pytest.mark.torch
def test_what_a_check_finds_comes_back_and_what_it_prints_is_in_the_log(tmp_path: Path) -> None:
    result = _one(_holds, tmp_path)
    assert (result.state, result.seen.text) == (State.PASSED, "on cpu")
    assert "heard" in (tmp_path / "log.txt").read_text()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("run", "why"),
    [
        (_is_broken, "the losses are apart"),
        (_raises, "KeyError: 'not thought of'"),
        (_leaves, "SystemExit: a program failed"),
        (_dies, "its process died without a word"),
        (_rank_fails, "ValueError: injected"),
    ],
)
def test_a_check_that_fails_says_why_and_the_others_go_on(run: object, why: str, tmp_path: Path) -> None:
    result = _one(run, tmp_path)
    assert result.state is State.FAILED
    assert why in result.why


@pytest.mark.torch
def test_a_check_that_does_not_end_is_ended_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    check = Check(text="it ends", run=_Waits(pids), expected_s=1)
    result = run_one("one", check, CPU, within_s=5.0, log=tmp_path / "log.txt")
    assert (result.state, result.why) == (State.FAILED, "it was not done within 5 s")
    for pid in pids.read_text().split():
        eventually(lambda pid=pid: has_ended(pid), what="its end")


class _Waits:
    """Never ends; its pids are in a file."""

    def __init__(self, pids: Path) -> None:
        self._pids = pids

    def __call__(self, place: Place, folder: Path) -> Seen:
        child = subprocess.Popen(["sleep", "1000"], process_group=0)
        self._pids.write_text(f"{os.getpid()} {child.pid}")
        while True:
            time.sleep(1)


def test_checks_that_do_not_fit_or_need_what_is_not_here_are_not_run(tmp_path: Path) -> None:
    checks = {
        "long": Check(text="long", run=_holds, expected_s=70),
        "two": Check(text="two GPUs", run=_holds, expected_s=5, gpus=2),
        "tool": Check(text="a tool", run=_holds, expected_s=5, needs=("no-such-tool|nor-this",)),
    }
    found = list(run_all(checks, Place(gpus=1), within_s=60.0, logs=tmp_path, now=lambda: 0.0))
    assert sorted((one.name, one.state, one.why) for one in found) == [
        ("long", State.LEFT, "takes about 70 s, and 60 of 60 s were left"),
        ("tool", State.NOT_RUN, "no-such-tool or nor-this is not installed"),
        ("two", State.NOT_RUN, "needs 2 GPUs, here is 1"),
    ]


@pytest.mark.slow
@pytest.mark.torch
def test_results_survive_a_kill_at_any_moment_and_a_later_call_adds_to_them(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tests.gpu", "--cpu", "--out", str(out)]
    running = subprocess.Popen([*command, "preflight", "equal-time"], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("passed   preflight"):
            break
    running.kill()
    running.wait()
    (report,) = read(out)
    assert [(one.name, one.state) for one in report.results] == [
        ("preflight", State.PASSED),
        ("equal-time", State.LEFT),
    ]
    done = subprocess.run([*command, "two-on-one"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["0 of 1 checks failed", f"all results: {out}"]
    assert [[one.name for one in each.results] for each in read(out)] == [
        ["preflight", "equal-time"],
        ["two-on-one"],
    ]
    assert not (out / "table.md").exists()  # on a CPU nothing is claimed


def test_without_a_gpu_there_is_one_clear_line_and_no_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    environment = {**os.environ, "PATH": str(tmp_path)}  # no nvidia-smi is found
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--out", str(out)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "no NVIDIA GPU here: nothing was checked, and nothing is claimed\n",
        "",
    )
    assert not out.exists()


def test_a_torch_without_cuda_where_there_are_gpus_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '0, GPU-aaaa'\n")
    tool.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", "--out", str(tmp_path / "out")],
        env={**os.environ, **path, "PYTHONPATH": torch_built_for(None, tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "torch is built for the CPU only" in done.stderr
    assert "make gpu PYTHON=" in done.stderr
