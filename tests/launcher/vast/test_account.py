"""The account's key is read in one place, from where Vast's own tools keep it, and is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import AuthError
from launcher.providers.vast.api import Account
from launcher.wiring import wire


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
    account = Account(key="very-secret")
    assert "very-secret" not in f"{account!r} {account} {[account]}"
