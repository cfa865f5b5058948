"""What a machine prints beside its answers: it costs little memory, and never keeps the user waiting."""

import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.launcher.ssh.machine import Machine
from vastrun.launcher.core.errors import BoxError, UnreachableError
from vastrun.launcher.ssh.remote import SshRemote

MB = 1 << 20
DRIPS = "while :; do echo drip >&{}; sleep 0.02; done"


class AskedError(Exception):
    """The user wants it ended."""


@pytest.fixture
def noisy(machine: Machine, tmp_path: Path) -> Callable[[str], SshRemote]:
    """A shell on a machine that runs a script before it answers how long a file is."""

    def shell(script: str) -> SshRemote:
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        for tool in ("bash", "head", "tail", "sleep", "timeout"):
            if not (tools / tool).exists():
                (tools / tool).symlink_to(shutil.which(tool) or "/missing")
        (tools / "wc").write_text(f'#!/bin/bash\n{script}\nexec {shutil.which("wc")} "$@"\n')
        (tools / "wc").chmod(0o755)
        return machine.shell(env={"PATH": str(tools)})

    return shell


def asks_after(calls: int) -> Callable[[], None]:
    """A check that raises at its last call."""
    left = [calls]

    def check() -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise AskedError

    return check


def test_errors_before_an_answer_are_refused_with_flat_memory(
    noisy: Callable[[str], SshRemote], machine: Machine
) -> None:
    (machine.box / "note").write_bytes(b"short")
    shell = noisy("head -c 52000000 /dev/zero >&2")
    before = psutil.Process().memory_info().rss
    for _ in range(4):
        with pytest.raises(BoxError, match="more than 1048576 bytes of errors"):
            shell.read("note")
    assert psutil.Process().memory_info().rss - before < 20 * MB


def test_a_machine_that_printed_too_much_is_read_again_by_a_new_command(
    noisy: Callable[[str], SshRemote], machine: Machine
) -> None:
    (machine.box / "note").write_bytes(b"short")
    shell = noisy(
        "[ -e printed ] || { touch printed 2>/dev/null || : >printed; head -c 20000000 /dev/zero >&2; }"
    )
    with pytest.raises(BoxError):
        shell.read("note")
    assert shell.read("note") == b"short"


def test_endless_errors_do_not_delay_the_user(noisy: Callable[[str], SshRemote], machine: Machine) -> None:
    (machine.box / "note").write_bytes(b"short")
    shell = noisy(DRIPS.format(2))
    shell.set_interrupt_check(asks_after(2))
    with pytest.raises(AskedError):
        shell.read("note")


def test_a_slow_file_does_not_delay_the_user(noisy: Callable[[str], SshRemote], machine: Machine) -> None:
    (machine.box / "note").write_bytes(b"short")
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
