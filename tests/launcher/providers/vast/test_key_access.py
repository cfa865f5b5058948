"""The run's key is attached once, and again while the machine rejects it; a refusal is told then."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulators.vast import VastEmulator
from tests.fakes import FakeClock
from tests.launcher.providers.vast.rentals import open_market, order, rent
from vastrun.launcher.core.errors import KeyNotAttachedError
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.credentials import VastAccount
from vastrun.launcher.providers.vast.instance_row import InstanceRow
from vastrun.launcher.providers.vast.key_access import VARIABLE, KeyAccess
from vastrun.launcher.providers.vast.limits import FileRateLimitStore, Limiter

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOur calm-heron"


class Desk:
    """One machine that runs, and who is let in there."""

    def __init__(self, vast: VastEmulator, folder: Path) -> None:
        self.vast, self.clock = vast, FakeClock(time.time())
        self.id = rent(open_market(vast, folder)).id
        account = VastAccount(key=vast.account_key, server=vast.url, login=vast.login)
        store = FileRateLimitStore(folder / "calls.json", self.clock.now)
        api = VastApi(account, Limiter(store, self.clock.sleep), self.clock)
        self.access = KeyAccess(api, self.clock)
        self.row = replace(InstanceRow.of(api.instance(self.id) or {}), actual_status="running")

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


def test_a_key_that_is_accepted_is_not_attached_again(desk: Desk) -> None:
    desk.attach()
    desk.access.note(desk.id, accepted=False)
    desk.access.note(desk.id, accepted=True)
    desk.clock.sleep(3600)
    assert desk.attach() == 1


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
    assert request["env"][VARIABLE] not in provider.start_script(ordered)
