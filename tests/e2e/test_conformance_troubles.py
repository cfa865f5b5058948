"""A conformance run with the line cut, the key revoked, the launcher killed: nothing stays rented."""

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conformance.examined import SETS, USD, Examined, honest_machines
from tests.e2e.market import LOADING
from tests.e2e.terminal import Terminal
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually
from vastrun.launcher.core.errors import AuthError

pytestmark = pytest.mark.torch

CONFORMANCE = (sys.executable, "-m", "tests.conformance")
RENT = ("-y", *(word for one in SETS for word in ("--set", one)))
BRIEF = ("--set", "limits.hours=0.007")
"""A lease of 25 s: what nobody ends is gone by then."""


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(honest_machines(4), pace=LOADING) as vast:
        yield vast


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_a_launcher_that_is_killed_leaves_nothing_rented(
    seed: int, rented: Terminal, vast: VastEmulator
) -> None:
    rented.program = CONFORMANCE
    launch = rented.start(*RENT, *BRIEF, PYTHONPATH=str(Path(__file__).parents[2]))
    eventually(lambda: vast.requests, what="the first request")
    time.sleep(random.Random(seed).uniform(0.5, 16.0))
    launch.kill()
    eventually(lambda: len(vast.instances) == 0, what="the end of it all")
    assert vast.billing.total_usd() <= USD


def _revoke(vast: VastEmulator) -> None:
    with vast.lock:
        vast.account.revoke(vast.account_key)


TROUBLES: Mapping[str, Callable[[VastEmulator], None]] = {
    "cut": lambda vast: vast.cut_network(6.0),
    "revoked": _revoke,
}


@pytest.mark.parametrize("phase", ["rent", "train", "destroy"])
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.slow
def test_a_line_or_key_that_fails_leaves_nothing_rented(trouble: str, phase: str, tmp_path: Path) -> None:
    with Examined(tmp_path) as examined:
        vast = examined.vast
        examined.screen.cues[phase] = lambda: TROUBLES[trouble](vast)
        with suppress(AuthError):  # a revoked key does not read the bill
            examined.examine()
        eventually(lambda: len(vast.instances) == 0, what="the end of it all")
        assert vast.billing.total_usd() <= USD
