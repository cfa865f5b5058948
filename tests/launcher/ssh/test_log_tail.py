"""A log on a machine, followed by its tail."""

from __future__ import annotations

import contextlib
import random

from tests.emulators.cable import Cable
from tests.launcher.ssh.machine import Machine
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.outputs.tail import OVERLAP, log_tail
from vastrun.launcher.ssh.remote import SshRemote

LOG = "run.log"
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


def test_a_log_that_was_begun_anew_is_noticed_although_it_is_longer(
    shell: SshRemote, machine: Machine
) -> None:
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
