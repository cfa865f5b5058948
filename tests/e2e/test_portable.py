"""The launcher on a Mac, as far as Linux can play one: without Linux's own names, without /proc and /sys."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.emulators.vast import VastEmulator
from tests.launcher.providers.docker.daemon import INFO, FakeDaemon
from tests.slow import slow

JOB = (str(JOBS / "script.yaml"), "--set", "ranks=1", *WITH_STUB_TORCH)
_LOOK = """
import json, os, pathlib, platform, select, signal, socket, sys, time
names = {os: "sched_getaffinity", select: "epoll", signal: "sigtimedwait", socket: "TCP_USER_TIMEOUT",
         time: "CLOCK_BOOTTIME"}
print(json.dumps([sys.platform, platform.system(), [hasattr(module, name) for module, name in names.items()],
                  [pathlib.Path(path).exists() for path in ("/proc/self/stat", "/sys", "/tmp")]]))
open("/proc/uptime")
"""


def test_what_plays_the_mac_has_nothing_of_linux(mac: Terminal) -> None:
    done = subprocess.run([sys.executable, "-c", _LOOK], env=mac.variables, capture_output=True, text=True)
    assert json.loads(done.stdout) == ["darwin", "Darwin", [False] * 5, [False, False, True]]
    assert "FileNotFoundError" in done.stderr


def test_the_doctor_says_what_serves_there(renting: Terminal) -> None:
    done = renting.type("doctor", "--provider", "vast", "--json")
    findings = {finding["name"]: finding for finding in done.json()["findings"]}
    assert done.exit_code == 0, done.out
    assert "Linux" in findings["tools"]["text"] and "--provider docker" in findings["tools"]["fix"]
    assert findings["vast key"]["health"] == "ok"
    assert "docker context" in findings["docker"]["fix"]
    assert "python" not in findings


@pytest.mark.parametrize("command", ["launch", *slow(("plan",), ("rehearse",))])
def test_what_runs_a_box_here_says_what_it_needs_before_anything_is_made(command: str, mac: Terminal) -> None:
    done = mac.type(command, *JOB, *(("--box", "box") if command == "rehearse" else ()))
    assert done.exit_code == 8
    assert "needs Linux with bash, setsid, flock, tar; this computer runs macOS" in done.err
    assert "--provider docker" in done.err
    assert mac.type("status", "--json").json()["runs"] == []
    assert {path.name for path in mac.folder.iterdir() if path.is_dir()} <= {"state"}
    assert not (mac.state / "vastrun" / "boxes").exists()


def test_a_job_is_planned_in_docker(mac: Terminal, tmp_path: Path) -> None:
    pytest.importorskip("docker")
    answers = {"GET /info": (200, INFO), "GET /images/.*/json": (200, {"Id": "sha256:0"})}
    with FakeDaemon(tmp_path, answers) as daemon:
        done = mac.type(
            "plan", *JOB, "--provider", "docker", "--set", "image=lab/own:1", DOCKER_HOST=daemon.url
        )
    assert done.exit_code == 0, done.err


def test_where_docker_does_not_answer_it_is_said_how_to_find_its_socket(mac: Terminal) -> None:
    done = mac.type("plan", *JOB, "--provider", "docker")
    assert done.exit_code == 1
    assert "export DOCKER_HOST=$(docker context inspect" in done.err


ON_VAST = ("--provider", "vast", "--set", "limits.usd=1", "-y")
WAITS = ("launch", *JOB, *ON_VAST, "--set", "command=python script.py waits")


@pytest.mark.slow
def test_a_job_is_planned_and_trained_on_vast_and_looked_at(renting: Terminal, vast: VastEmulator) -> None:
    planned = renting.type("plan", *JOB, *ON_VAST[:-1])
    assert planned.exit_code == 0, planned.err

    done = renting.type("launch", *JOB, *ON_VAST)

    assert done.exit_code == 0, done.err
    assert "SUCCEEDED" in done.out
    assert len(vast.instances) == 0
    assert renting.status()["run"]["verdict"] == "SUCCEEDED"
    assert "all is well" in renting.type("logs", "last").out
    assert (renting.outputs() / "outputs" / "result.txt").read_text() == "42\n"
    for command in (
        ("why", "last"),
        ("cost", "last"),
        ("hosts",),
        ("status",),
        ("reap", "--provider", "vast"),
    ):
        looked = renting.type(*command)
        assert looked.exit_code == 0, looked.err


@pytest.mark.slow
def test_a_live_launcher_keeps_its_run_and_a_dead_one_loses_it(renting: Terminal, vast: VastEmulator) -> None:
    first = renting.start(*WAITS)
    first.shows("step 3")
    second = renting.type("resume", "last")
    assert (second.exit_code, str(first.process.pid) in second.err) == (1, True), second.err

    first.kill()
    third = renting.start("resume", "last")
    third.shows("step ")
    third.send(signal.SIGINT)

    assert third.end().exit_code == 3
    assert len(vast.instances) == 0
