"""Whether a machine reaches the internet, and how fast: asked of a machine with any of three tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests import parts
from tests.jobs import train_job
from tests.launcher.terminal import Terminal
from vastrun.launcher.core import Cause
from vastrun.launcher.core.job import Checkpoints, JobSpec, Resources
from vastrun.launcher.decisions import download_check

TOOLS = ("timeout", "head", "wc")
DOWNLOADERS = ("curl", "wget", "python3")


class Pages(BaseHTTPRequestHandler):
    """16 MB, as fast as they go; 404 for `/none`."""

    def do_GET(self) -> None:
        body = b"no such page" if self.path == "/none" else bytes(16_000_000)
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            return  # it had enough

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{pages.server_port}"
        pages.shutdown()


def machine_with(folder: Path, *services: str) -> str:
    """The PATH of a machine that has only these."""
    for tool in services:
        found = sys.executable if tool == "python3" else shutil.which(tool)
        if found is None:
            parts.require(tool)
        (folder / tool).write_text(f'#!/bin/sh\nexec {found} "$@"\n')
        (folder / tool).chmod(0o755)
    return str(folder)


def seen_by(path: str, wanted: Resources) -> str:
    """What is wrong with its line."""
    shell = shutil.which("sh") or "/bin/sh"
    done = subprocess.run(
        [shell, "-c", download_check.command(wanted)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("down "), done.stderr
    return download_check.fault(done.stdout, wanted)


@pytest.mark.parametrize("tool", DOWNLOADERS)
def test_any_of_three_tools_tells_a_good_line_from_one_that_is_too_slow_and_from_none(
    tool: str, tmp_path: Path, server: str
) -> None:
    path = machine_with(tmp_path, *TOOLS, tool)
    assert seen_by(path, Resources(down_url=f"{server}/big", down_mbps=1.0)) == ""
    slow = seen_by(path, Resources(down_url=f"{server}/big", down_mbps=1e9))
    assert slow.endswith("Mbit/s down instead of 1e+09")
    cut_off = Resources(down_url="http://127.0.0.1:9/big")
    assert seen_by(path, cut_off) == "it cannot download from 127.0.0.1"


def test_an_error_page_shows_that_the_line_works_and_not_how_fast(tmp_path: Path, server: str) -> None:
    path = machine_with(tmp_path, *TOOLS, "curl")
    assert seen_by(path, Resources(down_url=f"{server}/none", down_mbps=1e9)) == ""


@pytest.mark.parametrize(
    ("printed", "fault"),
    [
        ("down 16000000 0 2.56", ""),  # all of it, at exactly half of the speed
        ("down 16000000 0 2.57", "50 Mbit/s down instead of 100"),
        ("down 15999999 0 2.9", ""),  # not all, and sooner than it should take
        ("down 15999999 10 13", "43 Mbit/s down instead of 100"),
        ("down 1000 0 2.9", ""),
        ("down 1000 0 3", "0 Mbit/s down instead of 100"),
        ("down 0 0 9", "it cannot download from files.pythonhosted.org"),
        ("down 16000000 5 5", ""),
        ("noise\ndown 16000000 10 14\nmore", "32 Mbit/s down instead of 100"),
    ],
)
def test_a_line_is_judged_once_all_came_or_its_time_was_up(printed: str, fault: str) -> None:
    assert download_check.fault(printed, Resources(down_mbps=100.0)) == fault


@pytest.mark.parametrize("printed", ["", "down", "down x y z", "sh: syntax error"])
def test_what_cannot_be_read_is_no_fault(printed: str) -> None:
    assert download_check.fault(printed, Resources(down_mbps=1e9)) == ""


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        (train_job(), False),
        (train_job(resources=Resources(down_mbps=100.0)), True),
        (train_job(setup=("pip install x",)), True),
        (train_job(checkpoints=Checkpoints(push="s3://models")), True),
        (train_job(checkpoints=Checkpoints(start_from="file:///models")), False),
    ],
)
def test_a_line_is_looked_at_only_where_the_job_needs_it(spec: JobSpec, needed: bool) -> None:
    assert download_check.is_needed(spec) is needed


def test_a_machine_that_reaches_nothing_is_given_back_and_the_next_one_trains(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.market.offline = {"host-1"}
    end = terminal.launch("--set", "setup=[pip install x]")
    assert end.exit_code == 0, end.output
    good, bad = terminal.ledger.runs()
    assert (bad.cause, bad.host, good.host) == (Cause.HOST, "host-1", "host-2")
    assert "it cannot download from files.pythonhosted.org" in bad.detail
    assert bad.released_at is not None
    assert bad.rented_at is not None
    assert bad.released_at - bad.rented_at < 60


def test_a_machine_below_the_wanted_speed_is_given_back(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    end = terminal.launch("--set", "resources.down_mbps=200")
    assert end.exit_code == 5
    assert "80 Mbit/s down instead of 200" in end.stderr
    assert terminal.machines() == 0
