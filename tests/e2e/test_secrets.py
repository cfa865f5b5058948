"""Keys and secrets: they are in nothing that a run leaves behind, and in nothing that others see of it."""

import contextlib
from collections.abc import Iterator, Mapping

import psutil
import pytest

from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.emulators.vast import VastEmulator
from tests.slow import slow
from tests.waiting import Watch

pytestmark = pytest.mark.torch

GIVEN = {"WANDB_API_KEY": "wandb" + "5" * 35, "USER_TOKEN": "token" + "7" * 35}
LAUNCH = (
    *("launch", str(JOBS / "secretive.yaml"), "--provider", "vast", "-y"),
    *("--set", "limits.usd=1", *WITH_STUB_TORCH),
)


class Witness(Watch):
    """Sees what is public while a run goes on: the arguments of all processes, and what Vast was told."""

    def __init__(self, vast: VastEmulator) -> None:
        self.keys = {"the account's key": vast.account_key}
        self.seen: dict[str, str] = {}
        self._vast = vast

    def look(self) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = " ".join(process.cmdline())
                self.seen[f"the arguments of process {process.pid}: {command}"] = command
        with self._vast.lock:
            for instance in self._vast.instances:
                self.keys["the instance's key"] = instance.api_key
                self.seen["the onstart text"] = instance.rental.onstart
                self.seen["the variables of the instance"] = str(instance.rental.env)
                if log := instance.box.log():
                    self.seen["the container's log"] = log


@pytest.fixture
def keeper(rented: Terminal) -> Terminal:
    """Whose temporary files lie in their folder, too."""
    (rented.folder / "tmp").mkdir()
    rented.variables |= {"TMPDIR": str(rented.folder / "tmp"), **GIVEN}
    return rented


def leaks(terminal: Terminal, texts: Mapping[str, str], secrets: Mapping[str, str]) -> Iterator[str]:
    """Where a secret is to be seen, in the texts and in all files of the terminal's folder."""
    files = {str(path): path.read_bytes() for path in terminal.folder.rglob("*") if path.is_file()}
    places = {place: text.encode() for place, text in texts.items()} | files
    for name, secret in secrets.items():
        assert len(secret) >= 40, f"{name} is too short to be found for certain"
        yield from (f"{name} in {place}" for place, content in places.items() if secret.encode() in content)


@pytest.mark.parametrize(
    ("arguments", "exit_code"), [((), 0), (("--set", "command=python secretive.py x"), 5)]
)
@pytest.mark.slow
def test_a_run_leaves_no_secret_behind(
    arguments: tuple[str, ...], exit_code: int, keeper: Terminal, vast: VastEmulator
) -> None:
    with Witness(vast) as witness:
        done = keeper.type(*LAUNCH, *arguments)
    texts = {"what is printed": done.out + done.err, "why": keeper.type("why", "last", "--json").out}
    assert done.exit_code == exit_code, done.err
    assert {"the account's key", "the instance's key"} == set(witness.keys)
    assert "the container's log" in witness.seen
    assert list(leaks(keeper, witness.seen | texts, witness.keys | GIVEN)) == []


@pytest.mark.parametrize(
    "fault", ["invalid_key", *slow(("server_error",), ("no_answer",), ("not_json",), ("two_factor",))]
)
def test_no_error_of_the_api_shows_the_key(fault: str, keeper: Terminal, vast: VastEmulator) -> None:
    vast.faults.add(fault, times=1000)
    done = keeper.type(*LAUNCH)
    assert done.exit_code != 0
    assert "error" in done.err
    texts = {"what is printed": done.out + done.err}
    assert list(leaks(keeper, texts, {"the account's key": vast.account_key, **GIVEN})) == []


@pytest.mark.slow
def test_an_address_where_nobody_answers_is_an_error_without_the_key(keeper: Terminal) -> None:
    done = keeper.type(*LAUNCH, VAST_URL="http://127.0.0.1:9")
    assert done.exit_code != 0
    key = keeper.variables["VAST_API_KEY"]
    assert list(leaks(keeper, {"what is printed": done.out + done.err}, {"the account's key": key})) == []
