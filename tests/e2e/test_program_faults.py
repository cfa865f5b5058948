"""Real faults of programs and machines, through the whole product: their causes, and the machines rented."""

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import parts
from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import Terminal
from tests.emulators.box import Graphics
from tests.emulators.nvidia_smi import nvidia_smi
from tests.emulators.vast import VastEmulator
from tests.http_servers import QuietHandler
from tests.waiting import eventually
from vastrun.onstart.boot.preflight.machine import torch_version

_TABLE = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())
_SHA256 = hashlib.sha256(b"x").hexdigest()
_SETSID = """#!/bin/sh
case "$*" in *run.sh*) exec unshare --mount {setsid} "$@" ;; esac
exec {setsid} "$@"
"""
"""Gives a box of this computer mounts of its own."""


def _rows() -> Iterator[Any]:
    for group, wrappers in (("faults", {"": {}}), ("wrapped", _TABLE["wrappers"])):
        for cause, faults in _TABLE[group].items():
            for name, fault in faults.items():
                for wrapper, how in wrappers.items():
                    row = fault if isinstance(fault, dict) else {"program": fault}
                    title = f"{name} in {wrapper}" if wrapper else name
                    yield pytest.param(cause, {**how, **row}, id=title)


class _Handler(QuietHandler):
    """Serves a file; the measurement of a machine connects without a request."""

    server: "_Server"

    def handle(self) -> None:
        super().handle()
        if not self.raw_requestline:
            self.server.measured.set()

    def do_GET(self) -> None:
        if self.path.endswith("?wait"):
            self.server.measured.wait(60)
        if self.path.endswith("?close"):
            self.server.shutdown()
            self.server.server_close()
        self.answer(200, b"x")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    measured = threading.Event()


@pytest.fixture
def folder() -> Iterator[Path]:
    """On a disk: a test hides /dev/shm. The control group of its name goes with it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="vastrun-") as folder:
        yield Path(folder)
    for group in Path("/sys/fs/cgroup").glob(f"*/{Path(folder).name}"):
        eventually(partial(_is_removed, group))


def _is_removed(group: Path) -> bool:
    with suppress(OSError):  # its last process still ends
        group.rmdir()
    return not group.exists()


@contextmanager
def _terminal(folder: Path, provider: str) -> Iterator[Terminal]:
    if provider == "vast":
        with VastEmulator(machines(3), pace=LOADING) as vast:
            yield Terminal(folder, **vast.variables)
        return
    graphics = Graphics(names=["RTX 4090"], memory_mb=24564, driver="580.95.05", cuda=13.0)
    tools = {"nvidia-smi": nvidia_smi(graphics)}
    if os.geteuid() == 0:
        tools["setsid"] = _SETSID.format(setsid=shutil.which("setsid"))
    (folder / "bin").mkdir()
    for name, text in tools.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    yield Terminal(folder, PATH=f"{folder}/bin:{os.environ['PATH']}")


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("cause", "fault"), list(_rows()))
@pytest.mark.parametrize("provider", ["local", "vast"])
def test_a_real_fault_has_its_cause_and_no_good_machine_is_left(
    folder: Path, provider: str, cause: str, fault: dict[str, Any]
) -> None:
    if "setup" in fault:
        parts.require("mounts")
    if fault.get("setup") in ("little memory", "few processes") and not Path("/sys/fs/cgroup/pids").exists():
        pytest.skip("no control groups of version 1 here")
    if fault.get("setup") == "old driver" and torch_version("cuda") is None:
        pytest.skip("this torch needs no driver")
    with _Server(("127.0.0.1", 0), _Handler) as server, _terminal(folder, provider) as terminal:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url, program = f"http://localhost:{server.server_port}/x", fault.get("program", "")
        (folder / "code").mkdir()
        (folder / "code" / "fault.py").write_text(program.replace("$URL", url))
        (folder / "code" / "wrapper.py").write_text(fault.get("wrapper", ""))
        setup = _TABLE["functions"] + _TABLE["setups"][fault["setup"]] if "setup" in fault else ""
        job = {
            "name": "faulty",
            "resources": {"gpus": 0, "disk_gb": 8},
            "code": {"path": "code"},
            "data": [{"url": url, "path": "x", "max_gb": 1, "sha256": _SHA256}] if "$URL" in program else [],
            "setup": [setup.replace("$GROUP", folder.name)] if setup else [],
            "limits": {"hours": 0.1, "usd": 1},
            "retry": {"host": 1, "communication": 1} if provider == "vast" else {},
            "success": {"exit_code": 0},
            "command": fault.get("command", f"python {'wrapper' if 'wrapper' in fault else 'fault'}.py"),
            **fault.get("job", {}),
        }
        (folder / "my-job.yaml").write_text(yaml.safe_dump(job))
        done = terminal.type("launch", "my-job.yaml", "-y", "--provider", provider)
        runs = terminal.type("status", "--all", "--json").json()["runs"]
        hosts = terminal.type("hosts", "--json").json()["hosts"] if provider == "vast" else []
        terminal.clean()
    assert runs[-1]["cause"] == cause, done.err + done.out
    is_of_the_machine = cause == "host"
    assert len(runs) == (2 if is_of_the_machine and provider == "vast" else 1), done.err
    assert is_of_the_machine or all(host["avoided"] is None for host in hosts), hosts
