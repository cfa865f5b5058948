"""Secrets from a password manager and from a `.env` file: the job has them, nothing else does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.e2e.test_overnight import ON_VAST, ask, night
from tests.e2e.test_secrets import Witness, leaks
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually

pytestmark = pytest.mark.torch

SECRETS = {"what op prints": "opval" + "3" * 35, "what .env holds": "dotev" + "6" * 35}
OP = """#!/bin/sh
# As 1Password's: prints what lies in the vault, which may be locked.
echo "$*" >>"{vault}/calls"
if [ -e "{vault}/locked" ]; then echo "[ERROR] you are not signed in" >&2; exit 6; fi
cat "{vault}/token"
"""


class Vault:
    """A password manager with one secret, and a `.env` file. They lie outside of the terminal's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        op_value, env_value = SECRETS.values()
        (folder / "token").write_text(f"{op_value}\n")
        (folder / ".env").write_text(f"# mine\nUSER_TOKEN='{env_value}'\n")
        (folder / "op").write_text(OP.format(vault=folder))
        (folder / "op").chmod(0o700)

    @property
    def job(self) -> str:
        return (
            "secrets=[{name: WANDB_API_KEY, command: op read op://Private/wandb/key}, "
            f"{{name: USER_TOKEN, env_file: {self._folder}/.env}}]"
        )

    @property
    def calls(self) -> int:
        return len((self._folder / "calls").read_text().splitlines())

    def lock(self) -> None:
        (self._folder / "locked").touch()


@pytest.fixture
def vault(rented: Terminal, tmp_path: Path) -> Iterator[Vault]:
    folder = tmp_path / "vault"
    folder.mkdir()
    (rented.folder / "tmp").mkdir()
    rented.variables["TMPDIR"] = str(rented.folder / "tmp")
    rented.variables["PATH"] = f"{folder}:{rented.variables['PATH']}"
    yield Vault(folder)


def launch(vault: Vault, *more: str) -> tuple[str, ...]:
    job = str(JOBS / "secretive.yaml")
    return ("launch", job, *ON_VAST, *WITH_STUB_TORCH, "--set", vault.job, *more)


@pytest.mark.slow
def test_the_driver_in_the_background_begins_a_retry_while_the_vault_is_locked(
    rented: Terminal, vast: VastEmulator, vault: Vault, tmp_path: Path
) -> None:
    with night(rented, tmp_path) as left:
        program = "test ${#WANDB_API_KEY} = 40 && python script.py passes_once_told"
        left.launch = (
            *(*left.launch, *ON_VAST, "--set", "retry={lost: 1, preempted: 1}"),
            *("--set", vault.job, "--set", f"command={program}"),
        )
        with Witness(vast) as witness:
            assert rented.type(*left.launch, "-d").exit_code == 0
            vault.lock()
            (first,) = vast.instances
            ask(vast, "DELETE", f"/api/v0/instances/{first.id}/", {})
            eventually(lambda: rented.status()["run"]["parent"], what="another attempt")
            left.finish()
            eventually(left.is_over, what="the end of the driver")
        assert rented.status()["run"]["verdict"] == "SUCCEEDED"
        assert vault.calls == 1
        assert list(leaks(rented, witness.seen, SECRETS)) == []


def test_a_locked_vault_is_one_clear_error_and_nothing_is_rented(
    rented: Terminal, vast: VastEmulator, vault: Vault
) -> None:
    vault.lock()
    done = rented.type(*launch(vault))
    assert done.exit_code == 2
    assert (
        f"error: {JOBS}/secretive.yaml: secrets: the command of WANDB_API_KEY failed with exit code 6: "
        "[ERROR] you are not signed in; expected one line on stdout, and exit code 0\n"
        "try:   run it by itself in this terminal: op read op://Private/wandb/key\n"
    ) in done.err
    assert len(vast.instances) == 0


@pytest.mark.slow
def test_all_points_of_a_batch_ask_a_password_manager_once(rented: Terminal, vault: Vault) -> None:
    job = str(JOBS / "secretive.yaml")
    done = rented.type(
        *("sweep", job, "env.SEED=1,2,3", "--provider", "local", "-y"),
        *(*WITH_STUB_TORCH, "--set", vault.job),
    )
    assert done.exit_code == 0, done.err
    assert vault.calls == 1
    assert list(leaks(rented, {"what is printed": done.out + done.err}, SECRETS)) == []
