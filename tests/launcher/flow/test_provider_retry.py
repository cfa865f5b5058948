"""Whose machine it is: a wrong key ends no run, and a clock that was set changes no bill."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.fakes import FakeClock
from tests.launcher.terminal import Market, Terminal
from tests.slow import slow
from vastrun.launcher.core import AccountStatus, Identity, Instance, RentalOrder
from vastrun.launcher.core.errors import AuthError, BusyError
from vastrun.launcher.decisions.deadlines import LEFT_TO_LEASE
from vastrun.launcher.ports import Abilities
from vastrun.launcher.ui.render.amounts import moment

OURS = "10001"


class Bank(Market):
    """A market with accounts. `account` is the key's; None: the key is not accepted."""

    account: str | None = OURS
    ahead_s = 0.0

    @property
    def abilities(self) -> Abilities:
        return replace(super().abilities, account=self)

    def identity(self) -> Identity:
        return Identity(account=self._checked(), clock_ahead_s=self.ahead_s)

    def account_status(self) -> AccountStatus:
        raise NotImplementedError

    def rent(self, order: RentalOrder) -> Instance:
        self._checked()
        return super().rent(order)

    def instances(self) -> list[Instance]:
        return list(super().instances()) if self._checked() == OURS else []

    def machine(self, instance_id: str) -> Instance | None:
        return super().machine(instance_id) if self._checked() == OURS else None

    def destroy(self, instance_id: str) -> None:
        if self._checked() == OURS:
            super().destroy(instance_id)

    def _checked(self) -> str:
        if self.account is None:
            raise AuthError("the key is not accepted")
        return self.account


class DesksClock(FakeClock):
    """The clock of the user's computer, which is ahead of the market's."""

    def __init__(self, market: FakeClock) -> None:
        super().__init__()
        self._market = market
        self.ahead_s = 0.0

    def now(self) -> float:
        return self._market.now() + self.ahead_s

    def sleep(self, seconds: float) -> None:
        self._market.sleep(seconds)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    terminal = Terminal(tmp_path, Training(seconds=600))
    terminal.market = Bank(terminal.clock, [Training(seconds=600)], usd_per_hour=3.6)
    return terminal


@pytest.mark.parametrize("account", ["10002", *slow((None,))])
@pytest.mark.parametrize(
    "command", [("resume", "last"), *slow((("stop", "--now", "last"),), (("wait", "last"),))]
)
@pytest.mark.sampled(2)
def test_a_key_that_does_not_reach_the_machine_is_an_error_of_the_command_and_the_run_stays_open(
    terminal: Terminal, account: str | None, command: tuple[str, ...]
) -> None:
    terminal.launch("--detach")
    before = terminal.ledger.runs()[0]
    terminal.market.account = account

    end = terminal.type(*command)

    assert end.exit_code == 4, end.output
    run = terminal.ledger.runs()[0]
    assert (run.phase, run.cause, run.account) == (before.phase, None, OURS)
    assert f"vastrun resume {run.id}" in end.stderr
    assert "account 10001" in end.stderr
    assert terminal.market.rented == 1

    terminal.market.account = OURS
    assert terminal.type("resume", "last").exit_code in (0, 3)
    assert terminal.market.rented == 0


@pytest.mark.parametrize("account", ["10002", None])
@pytest.mark.parametrize("command", [("resume", "last"), ("stop", "--now", "last")])
@pytest.mark.sampled(4)
def test_a_machine_that_a_key_leaves_to_its_lease_is_named_with_its_end_and_its_cost(
    terminal: Terminal, account: str | None, command: tuple[str, ...]
) -> None:
    terminal.launch("--detach")
    terminal.market.account = account
    failed = [terminal.type(*command) for _ in range(2)]

    run = terminal.ledger.runs()[0]
    (row,) = terminal.document("status")["runs"]
    told = [event for event in terminal.ledger.events(run.id) if event.told == LEFT_TO_LEASE]
    assert len(told) == (1 if command[0] == "resume" else 2)  # each request to stop is a line between
    assert row["lease"]["ends_at"] == pytest.approx(run.meter.began_at + 3000, abs=1)
    left_s = row["lease"]["ends_at"] - terminal.clock.now()
    assert row["lease"]["usd"] == pytest.approx(left_s / 3600 * 3.6, rel=0.01)
    said = f"ends machine 1 at {moment(row['lease']['ends_at'])} at the latest, for at most "
    assert all(f"lease: {said}" in end.stderr for end in failed)
    for output in (
        terminal.type("status"),
        terminal.type("status", "last"),
        terminal.type("reap", "--dry-run"),
    ):
        assert said in output.output
    assert f"vastrun resume {run.id}" in terminal.type("status").stdout
    assert "train (left to its lease)" in terminal.type("status").stdout

    terminal.market.account = OURS
    terminal.type("resume", "last")
    assert terminal.document("status")["runs"][0]["lease"] is None
    assert "left to its lease" not in terminal.type("status").stdout


def test_reap_lists_machines_that_are_left_to_their_leases_by_run(terminal: Terminal) -> None:
    terminal.launch("--detach")
    terminal.market.account = "10002"
    terminal.type("resume", "last")
    (left,) = terminal.document("reap", "--dry-run")["left"]
    assert (left["id"], left["instance_id"]) == (terminal.ledger.runs()[0].id, "1")


@pytest.mark.parametrize(("for_s", "code"), [(30, 0), (900, 4)])
@pytest.mark.sampled(2)
def test_a_key_that_is_refused_in_mid_run_is_tried_again_and_then_leaves_the_run_open(
    terminal: Terminal, for_s: float, code: int
) -> None:
    terminal.at(100, lambda: setattr(terminal.market, "account", None))
    terminal.at(100 + for_s, lambda: setattr(terminal.market, "account", OURS))
    assert terminal.launch().exit_code == code
    if code:
        assert terminal.ledger.runs()[0].cause is None
        terminal.market.account = OURS
        assert terminal.type("resume", "last").exit_code == 0
    assert terminal.market.rented == 0


class ForgetfulBank(Bank):
    """Rejects the key for 20 seconds from the first request after each of the given moments."""

    def __init__(self, clock: FakeClock, training: Training, *, after_s: list[float]) -> None:
        super().__init__(clock, [training], usd_per_hour=3.6)
        self._moments = [clock.now() + seconds for seconds in after_s]
        self._until = 0.0
        self.outages = 0

    def _checked(self) -> str:
        if self._moments and self.clock.now() >= self._moments[0]:
            del self._moments[0]
            self._until = self.clock.now() + 20
            self.outages += 1
        if self.clock.now() < self._until:
            raise AuthError("the key is not accepted")
        return super()._checked()


@pytest.mark.slow
def test_a_key_that_is_refused_again_much_later_is_tried_again_as_before(terminal: Terminal) -> None:
    terminal.market = ForgetfulBank(terminal.clock, Training(seconds=2000), after_s=[300, 1200])
    end = terminal.launch()
    assert terminal.market.outages == 2
    assert end.exit_code == 0, end.output
    assert end.stderr.count("the key is not accepted; trying again") == 2


def test_a_key_that_is_wrong_from_the_start_ends_the_run_before_renting(terminal: Terminal) -> None:
    terminal.market.account = None
    end = terminal.launch()
    assert end.exit_code == 5
    assert "the key is not accepted" in end.output
    assert terminal.ledger.runs(open_only=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("by_s", [-3600.0, 86_400.0, *slow((3600.0,), (30.0,))])
def test_a_clock_that_was_set_between_two_launchers_changes_no_bill(terminal: Terminal, by_s: float) -> None:
    desk = terminal.clock = DesksClock(terminal.clock)
    terminal.launch("--detach")
    desk.sleep(100)
    began = desk.now()
    desk.ahead_s = terminal.market.ahead_s = by_s

    assert terminal.type("resume", "last").exit_code == 0

    assert desk.now() - by_s - began < 1000
    bill_usd = terminal.market.bill_usd
    assert bill_usd <= terminal.document("cost")["usd"] <= bill_usd * 1.02


class CrowdedMarket(Bank):
    """Wants fewer calls, for a while, of one verb."""

    verb = ""
    until = 0.0

    def _busy(self, verb: str) -> None:
        if verb == self.verb and self.clock.now() < self.until:
            raise BusyError("Vast limits how often it may be called (HTTP 429)")

    def rent(self, order: RentalOrder) -> Instance:
        self._busy("rent")
        return super().rent(order)

    def instances(self) -> list[Instance]:
        self._busy("instances")
        return super().instances()

    def destroy(self, instance_id: str) -> None:
        self._busy("destroy")
        super().destroy(instance_id)


@pytest.mark.parametrize("verb", ["rent", "instances", "destroy"])
def test_no_run_fails_of_a_provider_that_wants_fewer_calls(terminal: Terminal, verb: str) -> None:
    terminal.market = CrowdedMarket(terminal.clock, [Training()], usd_per_hour=3.6)
    terminal.market.verb, terminal.market.until = verb, terminal.clock.now() + 900
    end = terminal.launch()
    assert end.exit_code == 0, end.output
    assert "limits how often" in end.stderr
    assert (terminal.market.rented, terminal.market.rentals) == (0, 1)


def test_a_rent_that_was_refused_because_of_too_many_calls_is_tried_again_soon(terminal: Terminal) -> None:
    terminal.market = CrowdedMarket(terminal.clock, [Training()], usd_per_hour=3.6)
    terminal.market.verb, terminal.market.until = "rent", terminal.clock.now() + 5
    assert terminal.launch().exit_code == 0
    run = terminal.ledger.runs()[0]
    assert run.rented_at is not None
    assert run.rented_at - run.created_at < 30
