"""A machine that prints much, or sends a byte now and then: no memory is filled, and nobody kept waiting."""

import shutil
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from tests.launcher.ssh.machine import Machine
from vastrun.launcher.core.errors import BoxError, SliceOverError, UnreachableError
from vastrun.launcher.ssh.remote import SshRemote

MB = 1 << 20
DRIPS = "while :; do echo drip >&{}; sleep 0.02; done"


class AskedError(Exception):
    """The user wants it ended."""


@pytest.fixture
def noisy(machine: Machine) -> Callable[[str], SshRemote]:
    """A shell on a machine that runs a script before it answers how long a file is."""
    (machine.box / "note").write_bytes(b"short")
    tools = ("bash", "head", "tail", "sleep", "timeout")
    count = f'exec {shutil.which("wc")} "$@"'
    return lambda script: machine.shell_with(*tools, wc=f"#!/bin/bash\n{script}\n{count}\n")


def asks_after(calls: int) -> Callable[[], None]:
    """A check that raises at its last call."""
    left = [calls]

    def check() -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise AskedError

    return check


def test_errors_before_an_answer_are_refused_with_flat_memory(noisy: Callable[[str], SshRemote]) -> None:
    shell = noisy("head -c 52000000 /dev/zero >&2")
    before = psutil.Process().memory_info().rss
    for _ in range(4):
        with pytest.raises(BoxError, match="more than 1048576 bytes of errors"):
            shell.read("note")
    assert psutil.Process().memory_info().rss - before < 20 * MB


def test_a_machine_that_printed_too_much_is_read_again_by_a_new_command(
    noisy: Callable[[str], SshRemote],
) -> None:
    shell = noisy(
        "[ -e printed ] || { touch printed 2>/dev/null || : >printed; head -c 20000000 /dev/zero >&2; }"
    )
    with pytest.raises(BoxError):
        shell.read("note")
    assert shell.read("note") == b"short"


def test_endless_errors_do_not_delay_the_user(noisy: Callable[[str], SshRemote]) -> None:
    shell = noisy(DRIPS.format(2))
    shell.set_interrupt_check(asks_after(2))
    with pytest.raises(AskedError):
        shell.read("note")


def test_a_slow_file_does_not_delay_the_user(noisy: Callable[[str], SshRemote]) -> None:
    shell = noisy(f"echo 99999; {DRIPS.format(1)}")
    shell.set_interrupt_check(asks_after(2))
    with pytest.raises(AskedError):
        shell.read("note", limit=MB)


@pytest.mark.parametrize("stream", [1, 2])
def test_a_command_that_drips_ends_when_its_time_is_over(shell: SshRemote, stream: int) -> None:
    with pytest.raises(UnreachableError, match="no answer within 2 s"):
        shell.run(DRIPS.format(stream), timeout_s=2)


def test_a_greeting_that_drips_does_not_keep_the_user_waiting(machine: Machine) -> None:
    (machine.sshd.home / ".bashrc").write_text(f"{DRIPS.format(1)}\n")
    shell = machine.shell()
    shell.set_interrupt_check(asks_after(2))
    with pytest.raises(AskedError):
        shell.run("true", timeout_s=30)


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
def slow(machine: Machine) -> Callable[[int, float], SshRemote]:
    """A shell on a machine that sends so many bytes of a file at once, then waits so long."""
    (machine.box / "file").write_bytes(CONTENT)

    def shell(size: int, pause_s: float) -> SshRemote:
        head = TRICKLES.format(python=sys.executable, size=size, pause_s=pause_s)
        return machine.shell_with("bash", "tail", "wc", "timeout", head=head)

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
