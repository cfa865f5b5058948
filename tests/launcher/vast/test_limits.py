"""All processes of a user together keep Vast's spacing."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import StorageError
from launcher.providers.vast import VastProvider
from launcher.providers.vast.api import Account
from launcher.providers.vast.limits import LIMITS, Limiter
from tests.emulators.clock import Clock
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "calls.json"


@pytest.mark.parametrize("endpoint", sorted(LIMITS))
def test_more_calls_than_the_limit_take_as_long_as_it_says(
    endpoint: str, file: Path, clock: FakeClock
) -> None:
    limiter, limit, began = Limiter(file, clock), LIMITS[endpoint], clock.now()
    for _ in range(limit.calls):
        limiter.wait(endpoint)
    assert clock.now() == began
    limiter.wait(endpoint)
    assert clock.now() - began >= limit.seconds


def test_another_process_waits_for_this_one_s_slot(file: Path, clock: FakeClock) -> None:
    began = clock.now()
    Limiter(file, clock).wait("create")
    Limiter(file, clock).wait("create")
    assert clock.now() - began >= 4.5


def test_one_endpoint_does_not_hold_up_another(file: Path, clock: FakeClock) -> None:
    limiter, began = Limiter(file, clock), clock.now()
    limiter.wait("create")
    limiter.wait("destroy")
    assert clock.now() == began


@pytest.mark.parametrize("endpoint", ["search", "list"])
def test_when_vast_asks_for_a_pause_every_process_makes_it(
    endpoint: str, file: Path, clock: FakeClock
) -> None:
    began = clock.now()
    Limiter(file, clock).hold_off(endpoint, 90.0)
    Limiter(file, clock).wait(endpoint)
    assert 90 <= clock.now() - began < 91


def test_a_clock_that_was_set_back_blocks_nobody(file: Path, clock: FakeClock) -> None:
    Limiter(file, clock).wait("list")
    earlier = FakeClock(clock.now() - 86_400)
    Limiter(file, earlier).wait("list")
    assert earlier.now() == clock.now() - 86_400


@pytest.mark.parametrize("content", ["", "{", "[]", '{"list": 3}', '{"list": [null]}'])
def test_a_damaged_file_blocks_nobody(content: str, file: Path, clock: FakeClock) -> None:
    file.parent.mkdir()
    file.write_text(content)
    began = clock.now()
    Limiter(file, clock).wait("list")
    assert clock.now() == began


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "state").write_text("a file, not a folder")
    with pytest.raises(StorageError, match="cannot write"):
        Limiter(tmp_path / "state" / "calls.json", clock).wait("list")


class TheMarketsClock:
    """Time that passes, there and here, when a launcher waits for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    def sleep(self, seconds: float) -> None:
        self._clock.advance(seconds)


def test_two_launchers_together_never_call_too_often(tmp_path: Path) -> None:
    with VastEmulator(clock=Clock(0)) as vast:
        account = Account(key=vast.account_key, server=vast.url, login=vast.login)
        clock = TheMarketsClock(vast.clock)
        launchers = [VastProvider(account, tmp_path, clock=clock) for _ in range(2)]
        began = clock.now()
        for launcher in launchers * 2:
            launcher.instances()
        assert vast.limits.refused == 0
        assert clock.now() - began >= 3.0
