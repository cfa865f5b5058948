"""All processes of a user queue together for their calls, and a refusal makes all of them slower."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.emulators.clock import Clock
from tests.emulators.limits import SPACING_S
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import open_market, order
from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import NoOfferError, StorageError
from vastrun.launcher.decisions.policy import RENT_TRIES
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.limits import LIMITS, FileRateLimitStore, Limit, Limiter
from vastrun.launcher.rate_limit_waits import RateLimitWaits, WaitTotal

MANY = 20


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "calls.json"


def limiter_of(file: Path, clock: FakeClock, sleep: Callable[[float], None] | None = None) -> Limiter:
    return Limiter(FileRateLimitStore(file, clock.now), sleep or clock.sleep)


def call(limiter: Limiter, endpoint: str) -> None:
    with limiter.turn(endpoint):
        pass


@pytest.mark.parametrize("endpoint", sorted(LIMITS))
def test_more_calls_than_the_limit_take_as_long_as_said(endpoint: str, file: Path, clock: FakeClock) -> None:
    limiter, limit, began = limiter_of(file, clock), LIMITS[endpoint], clock.now()
    for _ in range(limit.calls):
        call(limiter, endpoint)
    assert clock.now() == began
    call(limiter, endpoint)
    assert clock.now() - began >= limit.seconds


DOCUMENTED = {
    "create": "create",
    "list": "list_instances",
    "show": "show_instance",
    "destroy": "destroy",
    "charges": "charges",
}
"""Endpoints that have a limit in Vast's documentation, as the emulator calls them."""


@pytest.mark.parametrize("endpoint", sorted(LIMITS.keys() - {"search"}))
def test_a_call_waits_as_vast_documents_and_at_most_a_second_where_it_says_nothing(endpoint: str) -> None:
    spacing_s = LIMITS[endpoint].seconds / LIMITS[endpoint].calls
    if endpoint in DOCUMENTED:
        assert spacing_s == SPACING_S[DOCUMENTED[endpoint]]
    else:
        assert 0 < spacing_s <= 1.0


def test_what_calls_waited_for_is_reported_by_endpoint(file: Path, clock: FakeClock) -> None:
    waits = RateLimitWaits()
    store = FileRateLimitStore(file, clock.now)
    limiter = Limiter(store, clock.sleep, report_wait=lambda name, s: waits.report("vast", name, s))
    for endpoint in ("create", "create", "create", "search"):
        call(limiter, endpoint)
    found = waits.totals()
    assert found["vast", "create"].waits == 2
    assert 9.0 <= found["vast", "create"].seconds < 10.0
    assert found["vast", "search"] == WaitTotal()


def test_a_call_whose_turn_has_come_waits_while_the_refusal_of_another_process_holds(
    file: Path, clock: FakeClock
) -> None:
    class DiedError(Exception):
        """The process that was refused is killed while it waits."""

    refused_at: list[float] = []

    def dies(_seconds: float) -> None:
        raise DiedError

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if not refused_at:
            refused_at.append(clock.now())
            with pytest.raises(DiedError), limiter_of(file, clock, dies).turn("create", 60.0):
                pass

    for _ in range(LIMITS["create"].calls):
        call(limiter_of(file, clock), "create")
    call(limiter_of(file, clock, sleep), "create")
    assert clock.now() >= refused_at[0] + 60


def test_another_process_waits_for_this_one_s_slot(file: Path, clock: FakeClock) -> None:
    began = clock.now()
    call(limiter_of(file, clock), "create")
    call(limiter_of(file, clock), "create")
    assert clock.now() - began >= 4.5


def test_one_endpoint_does_not_hold_up_another(file: Path, clock: FakeClock) -> None:
    limiter, began = limiter_of(file, clock), clock.now()
    call(limiter, "create")
    call(limiter, "destroy")
    assert clock.now() == began


def test_the_distance_counts_from_the_end_of_a_call_that_took_its_time(file: Path, clock: FakeClock) -> None:
    limiter = limiter_of(file, clock)
    with limiter.turn("list"):
        clock.sleep(0.8)
    ended = clock.now()
    call(limiter, "list")
    assert clock.now() - ended >= 1.0


@pytest.mark.parametrize("endpoint", ["search", "list"])
def test_a_refusal_makes_everybody_pause_and_who_was_refused_is_the_first_again(
    endpoint: str, file: Path, clock: FakeClock
) -> None:
    """While one of them waits for its turn, another one is refused."""
    calls: list[tuple[str, float]] = []
    refusals = iter([90.0])

    def sleep(seconds: float) -> None:
        for pause_s in refusals:
            with limiter_of(file, clock).turn(endpoint, pause_s):
                calls.append(("refused", clock.now()))
            return
        clock.sleep(seconds)

    limiter, began = limiter_of(file, clock, sleep), clock.now()
    for _ in range(LIMITS[endpoint].calls + 1):
        with limiter.turn(endpoint):
            calls.append(("other", clock.now()))

    late = [(who, at - began) for who, at in calls if at > began]
    assert [who for who, _ in late] == ["refused", "other"]
    assert 0 <= late[0][1] - max(90, 2 * LIMITS[endpoint].seconds) < 1
    assert late[1][1] - late[0][1] >= 2 * LIMITS[endpoint].seconds / LIMITS[endpoint].calls


def test_the_times_of_calls_after_a_refusal_are_even_and_come_closer(file: Path, clock: FakeClock) -> None:
    limiter = Limiter(FileRateLimitStore(file, clock.now), clock.sleep, {"x": Limit(2, 10.0)})
    began, times = clock.now(), []
    with limiter.turn("x", 30.0):
        times.append(clock.now() - began)
    for _ in range(3):
        call(limiter, "x")
        times.append(clock.now() - began)
    # Twice as slow at first: 2 calls in 20 s. A tenth less of that with each call: 19 s, 18.1 s, 17.29 s.
    second = 30.0 + 19.0 / 2
    third = max(30.0 + 18.1 + 0.05, second + 18.1 / 2)
    fourth = max(second + 17.29 + 0.05, third + 17.29 / 2)
    assert times == pytest.approx([30.0, second, third, fourth])


def test_calls_in_peace_may_come_at_once_up_to_the_limit(file: Path, clock: FakeClock) -> None:
    limiter = Limiter(FileRateLimitStore(file, clock.now), clock.sleep, {"x": Limit(2, 10.0)})
    began, times = clock.now(), []
    for _ in range(5):
        call(limiter, "x")
        times.append(clock.now() - began)
    assert times == pytest.approx([0.0, 0.0, 10.05, 10.05, 20.1])


def test_refusals_make_calls_at_most_eight_times_as_slow(file: Path, clock: FakeClock) -> None:
    limiter = limiter_of(file, clock)
    for _ in range(9):
        with limiter.turn("list", 5.0):
            pass
    began = clock.now()
    call(limiter, "list")
    assert 6.0 < clock.now() - began < 8.1


@pytest.mark.parametrize("restarted", [True, False])
def test_a_computer_that_was_restarted_is_held_up_by_nothing_of_before(
    restarted: bool, file: Path, clock: FakeClock
) -> None:
    """The clock begins anew then. One that only went on is not forgotten, however long the queue is."""
    with limiter_of(file, clock).turn("list", 86_400.0 if restarted else 1.0):
        pass
    later = FakeClock(1000.0 if restarted else clock.now())
    call(limiter_of(file, later), "list")
    assert later.now() == 1000.0 if restarted else later.now() > clock.now()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"list": 3}', '{"at": 0, "queues": {"list": [null]}}'])
def test_a_damaged_file_blocks_nobody(content: str, file: Path, clock: FakeClock) -> None:
    file.parent.mkdir()
    file.write_text(content)
    began = clock.now()
    call(limiter_of(file, clock), "list")
    assert clock.now() == began


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "state").write_text("a file, not a folder")
    with pytest.raises(StorageError, match="cannot write"):
        call(limiter_of(tmp_path / "state" / "calls.json", clock), "list")


class SharedTime:
    """The time of a market and of all who use it: it passes when everybody waits."""

    def __init__(self, users: int) -> None:
        self.clock = Clock(0)
        self._awake = users
        self._wakes_at: dict[int, float] = {}
        self._changed = threading.Condition()

    def now(self) -> float:
        return self.clock.now()

    def sleep(self, seconds: float) -> None:
        with self._changed:
            self._wakes_at[threading.get_ident()] = self.now() + max(0.0, seconds)
            self._leave()
            while self.now() < self._wakes_at[threading.get_ident()]:
                self._changed.wait()
            del self._wakes_at[threading.get_ident()]
            self._awake += 1

    def leave(self) -> None:
        """One user less."""
        with self._changed:
            self._leave()

    def _leave(self) -> None:
        self._awake -= 1
        if self._awake == 0 and self._wakes_at:
            self.clock.advance(max(0.0, min(self._wakes_at.values()) - self.now()) + 1e-6)
            self._changed.notify_all()


def rented(provider: VastProvider, label: str) -> Instance:
    """A machine, if need be the next one: others rent at the same time."""
    for _ in range(RENT_TRIES):
        with suppress(NoOfferError):
            return provider.rent(order(provider, label=label))
    raise AssertionError(f"{label}: every offer was taken by others")


@pytest.mark.slow
def test_twenty_launchers_at_once_all_rent_and_none_calls_too_often(tmp_path: Path) -> None:
    time = SharedTime(MANY)
    market = [Machine(id=41000 + number) for number in range(MANY)]
    with VastEmulator(market, clock=time.clock) as vast:

        def rent_and_give_back(number: int) -> str:
            provider = open_market(vast, tmp_path, time)
            try:
                machine = rented(provider, f"vastrun-{number}")
                for _ in range(3):
                    assert machine.id in {listed.id for listed in provider.instances()}
                    time.sleep(1.0)
                provider.destroy(machine.id)
                return machine.host
            finally:
                time.leave()

        with ThreadPoolExecutor(MANY) as pool:
            hosts = list(pool.map(rent_and_give_back, range(MANY)))

        assert len(hosts) == MANY
        assert vast.limits.refused == 0
        assert len(vast.instances) == 0
