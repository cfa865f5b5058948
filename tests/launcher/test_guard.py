"""The guard looks at the user, time and money whatever the code does, and breaks a silent connection."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.cable import Cable
from tests.fakebox import Training
from tests.fakes import PRICE, FakeProvider, FakeRemote
from tests.launcher.ssh.conftest import cable, machine  # noqa: F401 - fixtures
from tests.launcher.ssh.machine import Machine
from tests.launcher.world import World
from tests.waiting import LONGEST_S
from vastrun.launcher.core import Cause, CommandResult, Instance, UserRequest
from vastrun.launcher.core.errors import UnreachableError
from vastrun.launcher.flow.services import Services
from vastrun.launcher.guard import GuardThread, InterruptibleClock
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.local.remote import LocalRemote
from vastrun.launcher.ssh.connection import ConnectTimeouts
from vastrun.launcher.ssh.remote import SshRemote

OFTEN_S = 0.05


def test_it_looks_again_and_again_while_a_block_waits() -> None:
    guard, looked = GuardThread(OFTEN_S), threading.Semaphore(0)
    with guard.guarding(looked.release):
        for _ in range(3):
            assert looked.acquire(timeout=LONGEST_S)
    assert guard.calls >= 3
    assert guard.longest_gap_s >= OFTEN_S


def test_it_looks_no_more_once_the_block_has_ended() -> None:
    guard, names = GuardThread(OFTEN_S), set[str]()
    with pytest.raises(ZeroDivisionError), guard.guarding(lambda: None):
        names.update(thread.name for thread in threading.enumerate())
        raise ZeroDivisionError
    assert "guard" in names
    assert "guard" not in {thread.name for thread in threading.enumerate()}


def test_a_wait_of_a_provider_and_of_a_local_command_ends_with_what_its_check_raises(tmp_path: Path) -> None:
    clock, remote = InterruptibleClock(time.time), LocalRemote(tmp_path, {})
    with pytest.raises(ZeroDivisionError), clock.interrupting(lambda: 1 / 0):
        clock.sleep(3600.0)
    clock.sleep(0.3)  # nobody checks it
    remote.set_interrupt_check(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        remote.run("sleep 5", timeout_s=3600.0)


def test_its_gap_is_the_longest_time_without_a_look() -> None:
    seconds = iter([0.0, 1.0, 1.0, 8.0, 8.0, *[9.0] * 1000])
    guard, looked = GuardThread(OFTEN_S, now=lambda: next(seconds)), threading.Semaphore(0)
    with guard.guarding(looked.release):
        for _ in range(3):
            assert looked.acquire(timeout=LONGEST_S)
    assert guard.longest_gap_s == 7.0


class StuckMarket(FakeProvider):
    """Its machines' connection is silent from the first look at the training on, until somebody breaks it."""

    def __init__(self, world: World, happens: Callable[[], None], usd_per_hour: float = PRICE) -> None:
        training = Training(seconds=1e6, obeys=False)
        super().__init__(world.clock, usd_per_hour=usd_per_hour, training=training)
        self.happens = happens
        """What becomes of the run meanwhile."""
        self.broken = 0

    def connect(self, instance: Instance) -> Remote:
        self.box(instance.id)
        return StuckRemote(self, instance.id)


class StuckRemote(FakeRemote):
    """A shell that can be interrupted, and asks nobody while it waits."""

    _provider: StuckMarket

    def __init__(self, provider: StuckMarket, instance_id: str) -> None:
        super().__init__(provider, instance_id)
        self._broken = threading.Event()

    def set_interrupt_check(self, check: Callable[[], None]) -> None:
        """Ask nobody: a call that waits within a library cannot."""

    def abort(self) -> None:
        self._broken.set()

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        done = super().run(command, timeout_s=timeout_s)
        if command == "bash onstart/status.sh" and self._box().started_at is not None:
            self._provider.happens()
            assert self._broken.wait(LONGEST_S), "the guard broke no connection"
            self._provider.broken += 1
            raise UnreachableError("the connection broke")
        return done


class GuardedWorld(World):
    def services(self, who: str | None = None) -> Services:
        return replace(super().services(who), provider=self.market, guard=GuardThread(OFTEN_S).guarding)


@pytest.mark.parametrize(
    ("usd_per_hour", "cause"), [(PRICE, Cause.MONEY_LIMIT), (0.01, Cause.TIME_LIMIT)], ids=["money", "time"]
)
def test_a_wait_that_asks_nobody_ends_at_a_limit(usd_per_hour: float, cause: Cause, tmp_path: Path) -> None:
    world = GuardedWorld(tmp_path)
    late_s = world.spec.limits.hours * 3600 + 600
    assert_ends(world, StuckMarket(world, lambda: world.pass_time(late_s), usd_per_hour), cause)


def test_a_wait_that_asks_nobody_ends_when_the_user_wants_the_machine_destroyed(tmp_path: Path) -> None:
    world = GuardedWorld(tmp_path)

    def asks() -> None:
        world.user_requests.at = {0.0: UserRequest.DESTROY}

    assert_ends(world, StuckMarket(world, asks), Cause.STOPPED)


def assert_ends(world: World, market: StuckMarket, cause: Cause) -> None:
    """The run ends with that cause, once the connection was broken, and leaves no machine."""
    world.market = market
    run = world.launch()
    assert (run.phase, run.cause) == ("ended", cause)
    assert market.broken == 1
    assert world.rented() == 0


def test_a_login_that_is_waited_for_ends_when_it_is_aborted(machine: Machine, cable: Cable) -> None:  # noqa: F811
    cable.stall()
    shell = machine.shell(cable.address, timeouts=ConnectTimeouts(connect_s=LONGEST_S * 4, stall_s=5))
    assert_ends_when_aborted(shell)


def test_a_tcp_connection_that_nobody_accepts_ends_when_it_is_aborted(machine: Machine) -> None:  # noqa: F811
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as open_sockets:
        for _ in range(8):  # its queue is full then, and further connections wait
            one = open_sockets.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        shell = machine.shell(
            server.getsockname(), timeouts=ConnectTimeouts(connect_s=LONGEST_S * 4, stall_s=5)
        )
        assert_ends_when_aborted(shell)


def test_a_session_that_is_waited_for_ends_when_it_is_aborted(machine: Machine, cable: Cable) -> None:  # noqa: F811
    shell = machine.shell(cable.address, timeouts=ConnectTimeouts(connect_s=5, stall_s=LONGEST_S * 4))
    shell.run("true", timeout_s=LONGEST_S)
    cable.stall()
    assert_ends_when_aborted(shell)


class RunStopped(Exception):
    """The user wants it ended."""


def assert_ends_when_aborted(shell: SshRemote) -> None:
    """A guard that aborts again and again ends it, long before its own limits."""
    is_over = threading.Event()

    def look() -> None:
        is_over.set()
        shell.abort()

    def check() -> None:
        if is_over.is_set():
            raise RunStopped

    shell.set_interrupt_check(check)
    began = time.monotonic()
    with GuardThread(0.5).guarding(look), pytest.raises((RunStopped, UnreachableError)):
        shell.run("true", timeout_s=LONGEST_S * 4)
    assert time.monotonic() - began < LONGEST_S
    shell.close()
