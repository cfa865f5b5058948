"""Files over a line that sends a byte now and then: a read ends in time, and the next one goes on there."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.launcher.ssh.machine import Machine
from vastrun.launcher.core.errors import SliceOverError
from vastrun.launcher.ssh.remote import SshRemote

CONTENT = bytes(range(256)) * 4
TRICKLES = """\
#!{python}
import os, sys, time
left = int(sys.argv[2])
while left:
    piece = os.read(0, min(left, {size}))
    if not piece:
        break
    os.write(1, piece)
    left -= len(piece)
    time.sleep({pause_s})
"""


@pytest.fixture
def slow(machine: Machine, tmp_path: Path) -> Callable[[int, float], SshRemote]:
    """A shell on a machine that sends so many bytes of a file at once, then waits so long."""

    def shell(size: int, pause_s: float) -> SshRemote:
        tools = tmp_path / "tools"
        tools.mkdir()
        for tool in ("bash", "tail", "wc", "timeout"):
            (tools / tool).symlink_to(shutil.which(tool) or "/missing")
        (tools / "head").write_text(TRICKLES.format(python=sys.executable, size=size, pause_s=pause_s))
        (tools / "head").chmod(0o755)
        (machine.box / "file").write_bytes(CONTENT)
        return machine.shell(env={"PATH": str(tools)})

    return shell


def test_read_returns_what_has_come_and_the_next_one_goes_on(slow: Callable[[int, float], SshRemote]) -> None:
    shell = slow(100, 0.25)
    content, reads = b"", 0
    while part := shell.read("file", offset=len(content)):
        content, reads = content + part, reads + 1
    assert content == CONTENT
    assert reads > 1


def test_a_read_whose_time_is_over_loses_and_mixes_no_byte(slow: Callable[[int, float], SshRemote]) -> None:
    shell, until = slow(400, 1.5), [0.0]

    def check() -> None:
        if time.monotonic() >= until[0]:
            raise SliceOverError("late")

    shell.set_interrupt_check(check)
    content, overs = b"", 0
    while len(content) < len(CONTENT):
        until[0] = time.monotonic() + 0.5
        try:
            content += shell.read("file", offset=len(content))
        except SliceOverError:
            overs += 1
    assert content == CONTENT
    assert overs


def test_another_file_is_read_meanwhile(slow: Callable[[int, float], SshRemote], machine: Machine) -> None:
    shell = slow(100, 0.5)
    (machine.box / "note").write_bytes(b"short")
    begun = shell.read("file")
    assert shell.read("note") == b"short"
    assert CONTENT.startswith(begun)
    assert shell.read("file", offset=len(begun), limit=10) == CONTENT[len(begun) : len(begun) + 10]
