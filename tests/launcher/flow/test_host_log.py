"""A machine that does not start is given up with what its host wrote; the first reason stays in front."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.fakes import PRICE
from tests.hostile.texts import HOST_LOGS
from tests.launcher.terminal import Market, Terminal
from vastrun.launcher.core import Cause, Instance, Phase, Run
from vastrun.launcher.core.errors import StorageError, UnexplainedError, UnreachableError, VastrunError
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.lease_expiry import MAX_HOST_LOG_WAIT_S
from vastrun.launcher.ports import Abilities, Remote
from vastrun.launcher.providers.vast import instance_row as boot

MANIFEST = "docker: Error response from daemon: manifest unknown."


class LoggingMarket(Market):
    """Its first machine does not start; its host has written something of it, or its log is out of reach."""

    log: str | VastrunError = ""
    unexplained = True
    """The provider says so at once; without, the machine loads for ever."""
    asked_s: tuple[float, ...] = ()

    @property
    def abilities(self) -> Abilities:
        return replace(super().abilities, host_log=self)

    def host_log(self, instance_id: str, *, within_s: float) -> str:
        self.asked_s = (*self.asked_s, within_s)
        if isinstance(self.log, VastrunError):
            raise self.log
        return self.log

    def cause_in(self, host_log: str) -> Cause | None:
        return boot.cause_in(host_log)

    def connect(self, instance: Instance) -> Remote:
        if self.unexplained and instance.host == "host-1":
            raise UnexplainedError("it does not start")
        return super().connect(instance)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    terminal = Terminal(tmp_path)
    terminal.market = LoggingMarket(terminal.clock, [Training()], usd_per_hour=PRICE)
    return terminal


def launch(terminal: Terminal, log: str | VastrunError, *, unexplained: bool = True) -> tuple[Run, list[str]]:
    """The first run, and what was told of its boot."""
    market = terminal.market
    market.log, market.unexplained = log, unexplained
    market.loading["host-1"] = Loading(seconds=math.inf)
    terminal.launch()
    run = terminal.ledger.runs()[-1]
    assert market.asked_s == (MAX_HOST_LOG_WAIT_S,), "asked once, for a few seconds"
    assert terminal.machines() == 0
    return run, [event.text for event in terminal.ledger.events(run.id) if event.phase is Phase.BOOT]


def test_an_image_that_only_the_host_s_log_names_is_not_the_host_s_fault(terminal: Terminal) -> None:
    run, told = launch(terminal, f"starting\n{MANIFEST}\nremoving the container\n")
    assert run.cause is Cause.USER_ERROR
    assert run.detail == f"it does not start; its host's log says: {MANIFEST}"
    assert f"host log: {MANIFEST}" in told
    assert len(terminal.ledger.runs()) == 1
    shown = " ".join(terminal.type("why", run.id).stdout.split())
    assert f"it does not start; its host's log says: {MANIFEST}" in shown


@pytest.mark.slow
def test_a_boot_that_timed_out_is_explained_too(terminal: Terminal) -> None:
    run, _ = launch(terminal, f"{MANIFEST}\n", unexplained=False)
    assert run.cause is Cause.USER_ERROR
    assert run.detail == (
        f"it makes no progress (loading: layer 0: Pulling fs layer) after {policy.NO_PROGRESS_S:.0f} s; "
        f"its host's log says: {MANIFEST}"
    )


def test_a_log_that_says_nothing_known_leaves_the_blame_where_it_was(terminal: Terminal) -> None:
    run, _ = launch(terminal, "something new\n")
    assert (run.cause, run.detail) == (Cause.HOST, "it does not start; its host's log says: something new")
    assert terminal.ledger.runs()[0].cause is None, "another machine was taken"


@pytest.mark.parametrize("error", [UnreachableError("no log within 5 s"), StorageError("no space")])
def test_a_log_that_cannot_be_read_hides_nothing(terminal: Terminal, error: VastrunError) -> None:
    run, told = launch(terminal, error)
    assert (run.cause, run.detail) == (Cause.HOST, "it does not start")
    assert any(line.startswith("its host's log cannot be read: no ") for line in told)


@pytest.mark.parametrize("name", HOST_LOGS)
def test_a_host_s_log_is_text_of_a_stranger(terminal: Terminal, name: str) -> None:
    run, told = launch(terminal, HOST_LOGS[name])
    assert run.cause is Cause.HOST
    assert len(run.detail) < 300
    assert sum(line.startswith("host log: ") for line in told) <= 5
    assert all(text.isprintable() for text in (run.detail, *told))


@pytest.mark.slow
def test_a_running_machine_that_does_not_answer_is_its_hosts_fault_despite_the_log(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.market = LoggingMarket(terminal.clock, [Training()], usd_per_hour=PRICE)
    terminal.market.cut_off = True
    terminal.market.log, terminal.market.unexplained = MANIFEST, False
    terminal.launch()
    assert terminal.ledger.runs()[-1].cause is Cause.HOST
