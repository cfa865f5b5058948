"""An address and a folder from outside: none becomes another option of OpenSSH's client, or a command."""

import subprocess
from pathlib import Path

import pytest

from tests.hostile.lie import STEERING
from tests.hostile.texts import ADDRESSES
from tests.waiting import LONGEST_S
from vastrun.launcher.core import SshAccess
from vastrun.launcher.core.errors import ProviderError
from vastrun.launcher.ssh.client_options import client_words, host_block

FOLDERS = {
    "another option": "/box\n    ProxyCommand touch owned",
    "another host": "/box\r\nHost *\n ProxyCommand touch owned",
    "without an end": "/" + "x" * (1 << 20),
    "steering": STEERING,
}


def access(host: str = "203.0.113.4", port: int = 22, folder: str = "/box") -> SshAccess:
    return SshAccess(
        host=host, port=port, user="root", key_path="/k/id", known_hosts_path="/k/known", folder=folder
    )


@pytest.mark.parametrize("host", ADDRESSES.values(), ids=ADDRESSES)
def test_an_address_that_is_none_is_an_error_of_the_provider(host: str) -> None:
    for write in (lambda: client_words(access(host)), lambda: host_block("h", access(host), [])):
        with pytest.raises(ProviderError, match="address of the machine is malformed") as caught:
            write()
        assert len(str(caught.value)) < 500 and str(caught.value).isprintable()


@pytest.mark.parametrize("port", [0, -1, 1 << 16, 10**30])
def test_a_port_that_is_none_is_an_error_of_the_provider(port: int) -> None:
    with pytest.raises(ProviderError, match="SSH port"):
        client_words(access(port=port))


@pytest.mark.needs("ssh")
@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
def test_a_folder_stays_in_its_comment(folder: str, tmp_path: Path) -> None:
    (tmp_path / "honest").write_text(host_block("h", access(), ["folder /box"]))
    (tmp_path / "lie").write_text(host_block("h", access(), [f"folder {folder}"]))
    text = (tmp_path / "lie").read_text()
    assert len(text) < 4000 and text.replace("\n", "").isprintable()
    assert read(tmp_path / "lie") == read(tmp_path / "honest")


def read(config: Path) -> str:
    """All options as the client reads them."""
    words = ["ssh", "-G", "-F", str(config), "h"]
    return subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S, check=True).stdout
