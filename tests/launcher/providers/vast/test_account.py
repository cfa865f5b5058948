"""The account's key is read in one place, from where Vast's own tools keep it, and is never shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.vast import VastEmulator
from tests.launcher.providers.vast.rentals import rent
from vastrun.launcher.core.errors import AuthError, ProviderError, VastrunError
from vastrun.launcher.environment import wire
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.account import identity
from vastrun.launcher.providers.vast.credentials import VastAccount


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """No key anywhere, and nobody behind the server's address."""
    return {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "VAST_URL": "http://127.0.0.1:9",
    }


def test_a_key_in_the_environment_is_enough(environ: dict[str, str]) -> None:
    assert wire(environ | {"VAST_API_KEY": "key"}).provider("vast").name == "vast"


def test_the_key_of_vast_s_own_tools_is_found(environ: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "config" / "vastai" / "vast_api_key"
    file.parent.mkdir(parents=True)
    file.write_text("key\n")
    assert wire(environ).provider("vast").name == "vast"


@pytest.mark.parametrize("key", ["", " \n"])
def test_without_a_key_the_error_says_where_one_is_looked_for(environ: dict[str, str], key: str) -> None:
    with pytest.raises(AuthError, match="vast_api_key") as caught:
        wire(environ | {"VAST_API_KEY": key}).provider("vast")
    assert "VAST_API_KEY" in caught.value.hint


def test_an_account_that_is_printed_shows_no_key() -> None:
    account = VastAccount(key="very-secret")
    assert "very-secret" not in f"{account!r} {account} {[account]}"


def test_without_vast_s_own_package_the_error_says_what_to_install(environ: dict[str, str]) -> None:
    script = """
import os, sys
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.environment import wire

sys.modules["vastai"] = sys.modules["requests"] = None
try:
    wire(os.environ).provider("vast").instances()
except UsageError as error:
    print(error.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ | {"VAST_API_KEY": "key"}, capture_output=True, text=True
    )
    assert done.stdout.startswith(f"{sys.executable} -m pip install 'vastai"), done.stderr


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


class Teller:
    """Says that of the account."""

    def __init__(self, user: dict[str, Any], date: str | None) -> None:
        self._answer = user, date

    def account(self) -> tuple[dict[str, Any], str | None]:
        return self._answer


@pytest.mark.parametrize(
    ("date", "ahead_s"),
    [
        # Asked 80 s after midnight, answered at 90 s; the header leaves out a part of a second.
        ("Thu, 01 Jan 2026 00:00:00 GMT", 79.0),
        ("Thu, 01 Jan 2026 00:01:20 GMT", 0.0),
        ("Thu, 01 Jan 2026 00:01:30 GMT", 0.0),
        ("Thu, 01 Jan 2026 01:00:00 GMT", 79.0 - 3600),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None),
        ("Mon, 01 Jan 0001 00:00:00 -0000", None),
        ("yesterday", None),
        ("", None),
        (None, None),
    ],
)
def test_the_time_that_vast_tells_is_believed_within_a_year(date: str | None, ahead_s: float | None) -> None:
    moments = iter((1_767_225_600.0 + 80, 1_767_225_600.0 + 90))
    told = identity(Teller({"id": 7}, date), lambda: next(moments))  # type: ignore[arg-type]
    assert (told.account, told.clock_ahead_s) == ("7", ahead_s)


@pytest.mark.parametrize("number", [None, "", "me", -1, 0, 1.5, 1 << 70, True, [], {}])
def test_an_account_without_a_number_is_none(number: object) -> None:
    with pytest.raises(ProviderError, match="does not name the account"):
        identity(Teller({"id": number}, None), lambda: 0.0)  # type: ignore[arg-type]
