"""The real adapters: where state lies, who drives, whether that process is alive, and a steady clock."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.jobs import train_job
from tests.runs import a_run
from tests.waiting import LONGEST_S
from vastrun.launcher.app import App, steady_clock
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Driver
from vastrun.launcher.core.errors import HeldError, StorageError, UsageError
from vastrun.launcher.core.job import Resources

RUN = a_run()
FAR = 1e12

_DRIVER = """
import os
from vastrun.launcher.core import Driver
from vastrun.launcher.app import App

app = App(os.environ)
app.ledger().hold("calm-heron-3f1a", Driver(who=app.who(), until=1e12))
print(app.who(), flush=True)
input()
"""

_SPENDER = """
import os, sys
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.errors import BudgetError
from vastrun.launcher.app import App

name = sys.argv[1]
app = App(os.environ)
app.ledger()
print("ready", flush=True)
input()
for number in range(40):
    now = app.now()
    run = Run(
        id=f"{name}-{number}", job="demo", spec_json="{}", provider="fake", phase=Phase.PLAN,
        out_dir="/", created_at=now, phase_at=now, reserved_usd=1.0,
    )
    try:
        app.ledger().add(run, app.budgets(now))
    except BudgetError as error:
        print(error)
        break
"""


@pytest.fixture
def app(tmp_path: Path) -> App:
    app = App({"XDG_STATE_HOME": str(tmp_path)})
    app.ledger().add(RUN)
    return app


def test_a_search_leaves_out_what_the_ledger_avoids(tmp_path: Path) -> None:
    machines = [Machine(id=1, address="45.3.2.1"), Machine(id=2, address="45.3.2.1"), Machine(id=3)]
    with VastEmulator(machines, rate_limits=False) as vast:
        keys = {"VAST_API_KEY": vast.account_key, "VAST_URL": vast.url}
        app = App({"XDG_STATE_HOME": str(tmp_path), **keys})
        provider, spec = app.provider("vast"), train_job(resources=Resources(gpus=1, disk_gb=10.0))
        offers = {offer.host: offer for offer in provider.search(spec)}
        failed = replace(RUN, provider="vast", offer=offers["1"], host="1", usd_per_hour=0.4, rented_at=1.0)
        ended_at, spec_json = app.now(), dump_job(spec)
        app.ledger().add(replace(failed, cause=Cause.HOST, phase_at=ended_at, spec_json=spec_json))
        assert {offer.host for offer in provider.search(spec)} == {"3"}


def test_the_state_lies_where_xdg_says(app: App, tmp_path: Path) -> None:
    assert app.ledger().get(RUN.id) == RUN
    assert (tmp_path / "vastrun" / "ledger.db").is_file()


def test_a_relative_state_folder_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    App({"XDG_STATE_HOME": "here"}).ledger()
    assert (tmp_path / ".local" / "state" / "vastrun" / "ledger.db").is_file()
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    "url", ["http://example.org", "http://9.9.9.9:80", "ftp://x", "console.vast.ai", "http://"]
)
def test_the_key_of_vast_is_sent_to_nobody_that_others_can_listen_to(url: str, tmp_path: Path) -> None:
    app = App({"XDG_STATE_HOME": str(tmp_path), "VAST_API_KEY": "s3cret", "VAST_URL": url})
    with pytest.raises(UsageError, match="VAST_URL: expected an address with https") as caught:
        app.provider("vast")
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "url", ["", "https://example.org", "http://127.0.0.1:1", "http://localhost", "http://172.17.0.1"]
)
def test_an_emulator_nearby_may_be_asked_without_encryption(url: str, tmp_path: Path) -> None:
    app = App({"XDG_STATE_HOME": str(tmp_path), "VAST_API_KEY": "s3cret", "VAST_URL": url})
    assert app.provider("vast").name == "vast"


def test_a_living_driver_keeps_its_run_and_a_killed_one_loses_it_at_once(app: App, tmp_path: Path) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _DRIVER],
        env={"XDG_STATE_HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert other.stdout is not None
    who = other.stdout.readline().strip()
    mine = Driver(who=app.who(), until=FAR)
    try:
        with pytest.raises(HeldError, match=f"process {other.pid}"):
            app.ledger().hold(RUN.id, mine)
    finally:
        other.kill()
        other.communicate()
    assert who.split(":")[1] == str(other.pid)
    app.ledger().hold(RUN.id, mine)
    assert len(list((tmp_path / "vastrun" / "launchers").iterdir())) == 1


def test_a_launcher_that_cannot_say_that_it_lives_says_so(tmp_path: Path) -> None:
    (tmp_path / "vastrun").mkdir()
    (tmp_path / "vastrun" / "launchers").touch()
    with pytest.raises(StorageError, match=r"cannot write .*launchers"):
        App({"XDG_STATE_HOME": str(tmp_path)}).who()


def test_a_process_that_has_the_number_of_a_dead_driver_is_not_that_driver(app: App) -> None:
    host, pid, _ = app.who().rsplit(":", 2)
    app.ledger().hold(RUN.id, Driver(who=f"{host}:{pid}:0123abcd", until=FAR))
    app.ledger().hold(RUN.id, Driver(who=app.who(), until=FAR))


def test_a_driver_on_another_computer_is_taken_to_be_alive(app: App) -> None:
    app.ledger().hold(RUN.id, Driver(who="elsewhere:1:1.0", until=FAR))
    with pytest.raises(HeldError, match="on elsewhere"):
        app.ledger().hold(RUN.id, Driver(who=app.who(), until=FAR))


def test_two_terminals_at_once_never_reserve_the_same_dollar_of_a_month(tmp_path: Path) -> None:
    (tmp_path / "vastrun").mkdir()
    (tmp_path / "vastrun" / "config.yaml").write_text("budget: {month_usd: 30.5}\n")
    environ = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    ledger = App(environ).ledger()
    terminals = [
        subprocess.Popen(
            [sys.executable, "-c", _SPENDER, name],
            env={**os.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for terminal in terminals:
        assert terminal.stdout is not None and terminal.stdout.readline() == "ready\n"
    for terminal in terminals:
        assert terminal.stdin is not None
        terminal.stdin.write("\n")
        terminal.stdin.flush()
    said = [terminal.communicate(timeout=LONGEST_S)[0] for terminal in terminals]
    assert len(ledger.runs()) == 30
    assert all("$30.00 reserved, of $30.50; a further run may cost $1.00" in text for text in said)


ROUNDING_S = 1e-6


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
def test_a_clock_that_is_set_forward_or_back_moves_nothing(jump_s: float) -> None:
    readings = iter([1_000_000.0, 1_000_000.0 + jump_s])
    before = time.monotonic()
    now = steady_clock(lambda: next(readings))
    assert 1_000_000.0 <= now() <= 1_000_000.0 + time.monotonic() - before + ROUNDING_S


def test_it_goes_on_by_itself() -> None:
    now = steady_clock(lambda: 0.0)
    before, first, after = time.monotonic(), now(), time.monotonic()
    while time.monotonic() - after < 0.01:
        pass
    least = time.monotonic() - after
    passed = now() - first
    assert least - ROUNDING_S <= passed <= time.monotonic() - before + ROUNDING_S
