"""`vastrun doctor --rent` with the line cut, the key revoked, the launcher killed: nothing stays rented."""

import json
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e.conformance import SETS, USD, honest_machines
from tests.e2e.market import LOADING
from tests.e2e.terminal import Launch, Terminal
from tests.emulators.vast import VastEmulator
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.cost.reconciliation import ROUNDED_USD

pytestmark = pytest.mark.torch

RENT = ("doctor", "--rent", "-y", "--watch", "2", *(word for one in SETS for word in ("--set", one)))
BRIEF = ("--set", "limits.hours=0.007")
"""A lease of 25 s: what nobody ends is gone by then."""


@pytest.fixture
def vast() -> Iterator[VastEmulator]:
    with VastEmulator(honest_machines(4), pace=LOADING) as vast:
        yield vast


def _revoke(_: Launch, vast: VastEmulator) -> None:
    with vast.lock:
        vast.account.revoke(vast.account_key)


TROUBLES: Mapping[str, Callable[[Launch, VastEmulator], None]] = {
    "killed": lambda launch, _vast: launch.kill(),
    "cut": lambda _launch, vast: vast.cut_network(6.0),
    "revoked": _revoke,
}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.slow
def test_whatever_happens_at_whatever_moment_nothing_stays_rented(
    seed: int, rented: Terminal, vast: VastEmulator
) -> None:
    trouble = list(TROUBLES)[seed % len(TROUBLES)]
    launch = rented.start(*RENT, *BRIEF, "--down-url", f"{vast.url}/download/2000000")
    moment_s = random.Random(seed).uniform(0.5, 16.0)
    eventually(lambda: vast.requests, what="the first request")
    time.sleep(moment_s)
    TROUBLES[trouble](launch, vast)

    if trouble == "cut":
        launch.end(within_s=LONGEST_S)
    eventually(lambda: len(vast.instances) == 0 and _orders_are_over(launch, vast), what="the end of it all")
    assert vast.billing.total_usd() <= USD


def _orders_are_over(launch: Launch, vast: VastEmulator) -> bool:
    """Nobody will rent any more: the launcher has ended, or its key opens nothing."""
    return launch.process.poll() is not None or vast.account_key not in vast.account.keys


@pytest.mark.slow
def test_the_command_reports_and_hands_its_file_to_an_emulator(rented: Terminal, vast: VastEmulator) -> None:
    file = rented.folder / "seen.json"
    done = rented.type(*RENT, "--file", str(file), "--down-url", f"{vast.url}/download/2000000", "--json")
    report = done.json()
    assert (done.exit_code, report["exit_code"]) == (0, 0), done.out + done.err
    rows = report["rows"]
    assert {row["name"] for row in rows if row["state"] != "agrees"} == {
        row["name"] for row in rows if row["when"] == "settle"
    }
    secrets = [vast.account_key, *vast.account.keys]
    assert not any(secret in file.read_text() for secret in secrets)

    settled = eventually(lambda: _settled(rented, file), what="the settled bill")
    assert all(row["state"] == "agrees" for row in settled["rows"])
    assert settled["counted"]["usd"] == pytest.approx(settled["billed_usd"], rel=0.03, abs=ROUNDED_USD)
    _assert_behaves_like(file, "key.bad", "403 auth_error")


def _settled(terminal: Terminal, file: Path) -> dict[str, object] | None:
    done = terminal.type("doctor", "--settle", str(file), "--json")
    report: dict[str, object] = done.json()
    return report if done.exit_code == 0 and report["billed_usd"] else None


def _assert_behaves_like(file: Path, name: str, word: str) -> None:
    """An emulator that is told by the file, with one row changed, behaves so."""
    record = json.loads(file.read_text())
    record["seen"][name] = word
    file.write_text(json.dumps(record))
    command = [sys.executable, "-m", "tests.emulators.vast", "--like", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as emulator:
        assert emulator.stdout
        try:
            line = emulator.stdout.readline()
            url = next(item.partition("=")[2] for item in line.split() if item.startswith("VAST_URL="))
            request = urllib.request.Request(
                f"{url}/api/v0/users/current", headers={"Authorization": "Bearer no"}
            )
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request)
        finally:
            emulator.terminate()
    assert caught.value.code == int(word.split()[0])
