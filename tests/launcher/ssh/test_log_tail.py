"""A log on a machine, followed by its tail."""

import contextlib
import random
import shutil
import tracemalloc

import psutil

from tests.emulators.cable import Cable
from tests.launcher.ssh.machine import Machine
from tests.waiting import eventually
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.outputs.folder import OVERLAP
from vastrun.launcher.outputs.store import log_tail
from vastrun.launcher.ssh.remote import SshRemote

LOG = "run.log"
PARAMIKO_WINDOW = 2 << 20
"""Bytes that a machine may send before they are taken."""
LINES = b"".join(b"%d.000 rank0 step %d\n" % (step, step) for step in range(200))


def next_of(shell: SshRemote, held: bytes, *, limit: int = 1 << 20) -> bytes | None:
    return log_tail(shell, LOG, held=len(held), last=held[-OVERLAP:], limit=limit)


def test_what_was_appended_follows_what_is_held(shell: SshRemote, machine: Machine) -> None:
    (machine.box / LOG).write_bytes(LINES)
    assert next_of(shell, LINES[:2000]) == LINES[2000:]
    assert next_of(shell, b"") == LINES


def test_no_more_than_the_limit_is_taken(shell: SshRemote, machine: Machine) -> None:
    (machine.box / LOG).write_bytes(LINES)
    assert next_of(shell, LINES[:2000], limit=100) == LINES[2000:2100]


def test_a_log_that_did_not_grow_has_nothing_new(shell: SshRemote, machine: Machine) -> None:
    (machine.box / LOG).write_bytes(LINES)
    assert next_of(shell, LINES) == b""


def test_a_log_that_is_not_there_has_not_grown(shell: SshRemote) -> None:
    assert next_of(shell, b"") == b""
    assert next_of(shell, LINES) == b""


def test_a_log_that_was_cut_is_noticed(shell: SshRemote, machine: Machine) -> None:
    for left in (1, len(LINES) - OVERLAP, len(LINES) - 1):
        (machine.box / LOG).write_bytes(LINES[:left])
        assert next_of(shell, LINES) is None


def test_a_log_that_was_begun_anew_is_noticed_though_it_is_longer(shell: SshRemote, machine: Machine) -> None:
    (machine.box / LOG).write_bytes(b"another run\n" + LINES * 2)
    assert next_of(shell, LINES) is None


def test_nothing_is_lost_or_repeated_while_the_line_breaks_and_the_log_grows(
    wired: SshRemote, cable: Cable, machine: Machine
) -> None:
    chance = random.Random(3)
    written = held = b""
    for step in range(24):
        with (machine.box / LOG).open("ab") as log:
            log.write(b"%d.000 rank0 step %d\n" % (step, step) * 50)
        written += b"%d.000 rank0 step %d\n" % (step, step) * 50
        if step % 8 == 3:
            cable.cut_after(chance.randrange(4000))
        with contextlib.suppress(UnreachableError):
            held += next_of(wired, held, limit=3000) or b""
    while new := next_of(wired, held):
        held += new
    assert held == written
    assert cable.connections > 3


def test_a_log_that_grows_is_seen_and_read(shell: SshRemote, machine: Machine) -> None:
    log = machine.box / LOG
    log.write_bytes(LINES[:2000])
    assert shell.has_grown(LOG) is None
    assert next_of(shell, b"") == LINES[:2000]
    assert shell.has_grown(LOG) is False
    with log.open("ab") as file:
        file.write(LINES[2000:])
    eventually(lambda: shell.has_grown(LOG), what="the growth")
    held = LINES[:2000]
    while held != LINES:
        new = next_of(shell, held)
        assert new is not None
        held += new
    assert shell.has_grown(LOG) is False


def test_a_followed_log_that_was_begun_anew_is_noticed(shell: SshRemote, machine: Machine) -> None:
    log = machine.box / LOG
    log.write_bytes(LINES)
    assert shell.has_grown(LOG) is None
    assert next_of(shell, b"") == LINES
    assert shell.has_grown(LOG) is False
    log.unlink()
    log.write_bytes(b"another\n" * 1000)
    eventually(lambda: next_of(shell, LINES) is None, what="the other log")


def test_a_log_is_read_as_before_where_tail_cannot_follow(machine: Machine) -> None:
    log = machine.box / LOG
    log.write_bytes(LINES[:2000])
    with contextlib.closing(shell_with_tail(machine, "exit 1")) as shell:
        assert shell.has_grown(LOG) is None
        assert next_of(shell, b"") == LINES[:2000]
        eventually(lambda: shell.has_grown(LOG) is None, what="the end of tail")
        log.write_bytes(LINES)
        assert next_of(shell, LINES[:2000]) == LINES[2000:]
        assert shell.has_grown(LOG) is None


def test_a_tail_without_end_takes_no_more_memory_than_its_cap(machine: Machine) -> None:
    (machine.box / LOG).write_bytes(LINES)
    with contextlib.closing(shell_with_tail(machine, "exec yes")) as shell:
        assert shell.has_grown(LOG) is None
        assert next_of(shell, b"") == LINES
        tracemalloc.start()
        try:
            eventually(lambda: shell.has_grown(LOG), what="what it sends")
            for _ in range(1000):
                assert shell.has_grown(LOG)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 4 * caps.FOLLOWED_BYTES + PARAMIKO_WINDOW
        assert len(shell.read(LOG, offset=len(LINES), limit=100)) <= 100
        assert next_of(shell, b"") is not None


def test_what_a_tail_makes_up_is_not_taken_for_the_log_once_the_machine_is_asked(
    machine: Machine,
) -> None:
    (machine.box / LOG).write_bytes(LINES)
    with contextlib.closing(shell_with_tail(machine, "echo other; exec sleep 600")) as shell:
        assert shell.has_grown(LOG) is None
        assert next_of(shell, b"") == LINES
        shell.has_grown(LOG)
        eventually(lambda: next_of(shell, LINES) == b"", what="the log as it is")


def shell_with_tail(machine: Machine, follows: str) -> SshRemote:
    """A shell on a machine whose `tail -f` does this instead."""
    case = f'case "$*" in *-f*) {follows};; esac'
    return machine.shell_with(tail=f'#!/bin/sh\n{case}\nexec {shutil.which("tail")} "$@"\n')


def test_nothing_is_left_on_the_machine_of_a_followed_log(shell: SshRemote, machine: Machine) -> None:
    (machine.box / LOG).write_bytes(LINES)
    assert shell.has_grown(LOG) is None
    assert next_of(shell, b"") == LINES
    assert shell.has_grown(LOG) is False
    followers = eventually(lambda: [*filter(_follows, psutil.process_iter())], what="its tail")
    shell.close()
    eventually(lambda: not any(map(_follows, followers)), what="their end")


def _follows(process: psutil.Process) -> bool:
    """Whether it is a `tail` that follows the log."""
    with contextlib.suppress(psutil.Error):
        words = process.cmdline()
        return words[:1] == ["tail"] and words[-1] == LOG
    return False
