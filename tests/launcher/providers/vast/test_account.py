"""The account's key is read in one place, from where Vast's own tools keep it, and is never shown."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import open_market, order, rent
from vastrun.launcher.app import App
from vastrun.launcher.core.errors import AuthError, KeyNotAttachedError, ProviderError, VastrunError
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.account import VARIABLE, CachedQuery, KeyAccess, backups_of, identity
from vastrun.launcher.providers.vast.api import VastApi, clock_ahead_s
from vastrun.launcher.providers.vast.instance_row import InstanceRow
from vastrun.launcher.providers.vast.transport import VastAccount

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOur calm-heron"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """No key anywhere, and nobody behind the server's address."""
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "VAST_URL": "http://127.0.0.1:9",
    }


def test_a_key_in_the_environment_is_enough(environ: dict[str, str]) -> None:
    assert App(environ | {"VAST_API_KEY": "key"}).provider("vast").name == "vast"


def test_the_key_of_vast_s_own_tools_is_found(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "config" / "vastai" / "vast_api_key"
    file.parent.mkdir(parents=True)
    file.write_text("key\n")
    assert App(environ).provider("vast").name == "vast"


@pytest.mark.parametrize("key", ["", " \n"])
def test_without_a_key_the_error_says_where_one_is_looked_for(environ: dict[str, str], key: str) -> None:
    with pytest.raises(AuthError, match="vast_api_key") as caught:
        App(environ | {"VAST_API_KEY": key}).provider("vast")
    assert "VAST_API_KEY" in caught.value.hint


def test_an_account_that_is_printed_shows_no_key() -> None:
    account = VastAccount(key="very-secret")
    assert "very-secret" not in f"{account!r} {account} {[account]}"


def test_no_key_is_in_any_file_or_error(vast: VastEmulator, provider: VastProvider, tmp_path: Path) -> None:
    machine = rent(provider)
    said = []
    for fault in ("server_error", "no_answer", "not_json", "invalid_key", "too_many_requests"):
        vast.faults.add(fault, times=99)
        for call in (provider.instances, lambda: provider.destroy(machine.id)):
            with pytest.raises(VastrunError) as caught:
                call()
            said.append(f"{caught.value!r} {caught.value} {caught.value.hint} {caught.value.__cause__!r}")
        vast.faults.clear()
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert vast.account_key not in " ".join(said)
    assert vast.account_key.encode() not in b" ".join(files)


@pytest.mark.parametrize(
    ("date", "ahead_s"),
    [
        # Asked 80 s after midnight, answered at 90 s; the header leaves out a part of a second.
        ("Thu, 01 Jan 2026 00:00:00 GMT", 79.0),
        ("Thu, 01 Jan 2026 00:01:18 GMT", 1.0),
        ("Thu, 01 Jan 2026 00:01:19 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:01:20 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:01:30 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:01:31 GMT", -12.0),
        ("Thu, 01 Jan 2026 01:00:00 GMT", 79.0 - 3600),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None),
        ("Mon, 01 Jan 0001 00:00:00 -0000", None),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_the_time_that_vast_tells_is_believed_within_a_year(date: str | None, ahead_s: float | None) -> None:
    assert clock_ahead_s(date, 1_767_225_600.0 + 80, 1_767_225_600.0 + 90) == ahead_s


@pytest.mark.parametrize("number", [None, "", "me", -1, 0, 1.5, 1 << 70, True, [], {}])
def test_an_account_without_a_number_is_none(number: object) -> None:
    api = cast("VastApi", SimpleNamespace(account=lambda: {"id": number}))
    with pytest.raises(ProviderError, match="does not name the account"):
        identity(api)


class Oracle:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False

    def __call__(self) -> int:
        self.asked += 1
        if self.fails:
            raise ValueError("no answer")
        return self.asked


def test_an_answer_holds_until_it_is_too_old_or_forgotten() -> None:
    clock, oracle = FakeClock(), Oracle()
    latest = CachedQuery(oracle, clock.now, 5.0)
    assert [latest.get(), latest.get()] == [1, 1]
    clock.sleep(5.0)
    assert latest.get() == 2
    latest.invalidate()
    assert latest.get() == 3


def test_without_an_age_every_question_is_asked() -> None:
    oracle = Oracle()
    latest = CachedQuery(oracle, FakeClock().now, 0.0)
    assert [latest.get(), latest.get()] == [1, 2]


def test_a_question_that_failed_is_asked_again_and_the_old_answer_is_no_answer() -> None:
    clock, oracle = FakeClock(), Oracle()
    latest = CachedQuery(oracle, clock.now, 5.0)
    latest.get()
    clock.sleep(6.0)
    oracle.fails = True
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"):
            latest.get()
    assert oracle.asked == 3


def test_threads_that_ask_together_wait_for_one_answer() -> None:
    latest = CachedQuery(Oracle(), FakeClock().now, 5.0)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: latest.get(), range(8))) == [1] * 8


class Desk:
    """One machine that runs, and who is let in there."""

    def __init__(self, vast: VastEmulator, folder: Path) -> None:
        self.vast, self.clock = vast, FakeClock(time.time())
        provider = open_market(vast, folder, self.clock)
        self.id = rent(provider).id
        self.access = KeyAccess(provider.api, self.clock)
        self.row = replace(InstanceRow.of(provider.api.instance(self.id) or {}), state="running")

    def attach(self) -> int:
        """How often the key was attached by now."""
        self.access.attach(self.row, KEY)
        keys = self.vast.instances.get(int(self.id)).ssh_keys
        return sum(key == KEY for key in keys.values())


@pytest.fixture
def desk(vast: VastEmulator, tmp_path: Path) -> Desk:
    return Desk(vast, tmp_path)


def test_a_key_is_attached_once_while_nothing_is_wrong(desk: Desk) -> None:
    assert [desk.attach(), desk.attach()] == [1, 1]
    desk.access.note(desk.id, accepted=True)
    desk.clock.sleep(3600)
    assert desk.attach() == 1


def test_a_key_that_is_rejected_is_attached_again_and_ever_more_rarely(desk: Desk) -> None:
    desk.attach()
    desk.access.note(desk.id, accepted=False)
    attached = []
    for _ in range(60):
        desk.clock.sleep(5)
        attached.append(desk.attach())
    assert attached[:2] == [1, 1]
    assert attached[2] == 2, "after 15 s"
    assert attached[-1] == 5, "within the 300 s that a machine may run without an answer"


def test_a_refused_attach_is_told_once_the_machine_rejects_the_key(desk: Desk) -> None:
    desk.vast.faults.add("attach_refused")
    desk.attach()
    with pytest.raises(KeyNotAttachedError, match=r"did not attach the run's SSH key.*cannot be attached"):
        desk.access.note(desk.id, accepted=False)


def test_a_refused_attach_does_not_matter_where_the_machine_has_the_key(desk: Desk) -> None:
    desk.vast.faults.add("attach_denied")
    desk.attach()
    desk.access.note(desk.id, accepted=True)


def test_the_key_is_passed_as_a_variable_without_spaces(vast: VastEmulator, tmp_path: Path) -> None:
    provider = open_market(vast, tmp_path)
    ordered = order(provider)
    request = provider.request(ordered)
    assert f"ssh-ed25519 {request['env'][VARIABLE]}" in provider.public_key(ordered.label)
    assert " " not in request["env"][VARIABLE]
    assert provider.abilities.start_script is not None
    assert request["env"][VARIABLE] not in provider.abilities.start_script(ordered)


def backup(**changes: Any) -> dict[str, Any]:
    """A backup of instance 7 as the SDK lists it, but for the changes."""
    return {"id": 1, "contract_id": 7, "type": "instance", "status": "success", "info": ""} | changes


def test_the_newest_backup_of_a_machine_is_named_with_the_command_that_restores_it(
    vast: VastEmulator, tmp_path: Path
) -> None:
    vast.account.backups += [backup(status="pending\n\x1b[2J"), backup(), backup(contract_id=8)]
    api = open_market(vast, tmp_path).api
    (named,) = backups_of(api, "7")
    assert "state is pending" in named and "vastai copy vast.7:/upper/workspace" in named
    assert "\x1b" not in named and "\n" not in named
    assert backups_of(api, "9") == []


@pytest.mark.parametrize("rows", [[None], ["7"], [{}], [{"contract_id": {}}], [backup(contract_id=[7])]])
def test_a_backup_that_makes_no_sense_is_none(rows: list[Any]) -> None:
    api = SimpleNamespace(call_once=lambda _: {"backups": rows})
    assert backups_of(cast("VastApi", api), "7") == []
    rows[:] = [backup(status=None)]
    assert "state is unknown" in backups_of(cast("VastApi", api), "7")[0]
