"""Secrets that a command prints: how it is run, within which limits, and for how long a value is known."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from tests.pty import pty
from vastrun.launcher.bundle.secret_command import MAX_AGE_S, MAX_BYTES, MAX_FALLBACK_AGE_S, CommandSecrets
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import Secret

VALUE = "hunter2-hunter2"
ENVIRONMENT = {"PATH": os.environ["PATH"], "WORD": VALUE}


def secret(command: str, folder: Path | None = None) -> Secret:
    return Secret(name="TOKEN", command=command, folder=None if folder is None else str(folder))


def counting(folder: Path, *, fails: str = "false") -> Secret:
    """Each call adds a letter to `calls`, and prints how many there are; fails where `fails` succeeds."""
    return secret(f"printf x >>calls; {fails} && exit 3; wc -c <calls", folder)


@pytest.mark.parametrize(
    "command",
    [
        "printenv WORD",
        'echo "$WORD"',
        "printenv WORD | head -n 1",
        "printf '%s\\r\\n' \"$WORD\"",
        "printf %s hunter2-hunter2",
        "test -t 0 || cat - && printenv WORD",
    ],
)
def test_a_program_or_a_script_prints_a_secret(command: str) -> None:
    assert CommandSecrets(ENVIRONMENT).read(secret(command)) == VALUE


def test_a_command_runs_in_the_folder_of_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "token.sh").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "token.sh").chmod(0o700)
    assert CommandSecrets(ENVIRONMENT).read(secret("./token.sh", tmp_path)) == str(tmp_path)


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("false", "failed with exit code 1"),
        ("sh -c 'echo not signed in >&2; exit 6'", "failed with exit code 6: not signed in"),
        ("sh -c 'printenv WORD; printenv WORD >&2; exit 6'", "failed with exit code 6;"),
        ("kill -9 $$", "failed with signal 9"),
        ("true", "printed nothing"),
        ("echo ' '", "printed nothing"),
        ("printenv WORD; echo user: me", "printed 2 lines"),
        ("printf 'hunter2\\377'", "did not print text in UTF-8"),
        ("printf 'hunter2\\000'", "did not print text in UTF-8"),
        (f"head -c {MAX_BYTES + 1} /dev/zero", "printed more than 32 KiB"),
        ("yes hunter2", "printed more than 32 KiB"),
        ("no-such-program read", "cannot be run: no-such-program was not found"),
        ("printf '\\033[31m' >&2; echo 'red' >&2; exit 1", "exit code 1: red;"),
    ],
)
def test_a_command_that_prints_no_secret_is_named_with_what_to_do(command: str, fault: str) -> None:
    with pytest.raises(JobValueError, match="secrets: the command of TOKEN ") as caught:
        CommandSecrets(ENVIRONMENT).read(secret(command))
    assert fault in str(caught.value) and "expected one line on stdout" in str(caught.value)
    assert f"run it by itself in this terminal: {command}" in caught.value.hint
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobValueError, match=r"cannot be run: .*/gone was not found"):
        CommandSecrets(ENVIRONMENT).read(secret("printenv WORD", tmp_path / "gone"))


@pytest.mark.parametrize(
    "command", ["sleep 60", "sleep 60 | cat", "exec >&- 2>&-; sleep 60", "sleep 60 & wait"]
)
def test_a_slow_command_is_killed(command: str) -> None:
    began = time.monotonic()
    with pytest.raises(JobValueError, match=r"did not end within 0\.3 s"):
        CommandSecrets(ENVIRONMENT, timeout_s=0.3).read(secret(command))
    assert time.monotonic() - began < 10


def test_a_daemon_that_a_command_starts_is_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    assert CommandSecrets(ENVIRONMENT).read(secret("(sleep 30 &) ; printenv WORD", tmp_path)) == VALUE
    assert time.monotonic() - began < 20


def test_a_value_is_read_again_when_it_is_old(tmp_path: Path) -> None:
    clock, token = FakeClock(), counting(tmp_path)
    secrets = CommandSecrets(ENVIRONMENT, now=clock.now)
    assert [secrets.read(token), secrets.read(token)] == ["1", "1"]
    clock.sleep(MAX_AGE_S + 1)
    assert secrets.read(token) == "2"


def test_a_former_value_is_used_for_a_day_where_the_vault_is_locked_again(tmp_path: Path) -> None:
    clock, token = FakeClock(), counting(tmp_path, fails="test -e locked")
    secrets = CommandSecrets(ENVIRONMENT, now=clock.now)
    assert secrets.read(token) == "1"
    (tmp_path / "locked").touch()
    clock.sleep(MAX_AGE_S + 1)
    assert secrets.read(token) == "1" and (tmp_path / "calls").read_text() == "xx"
    clock.sleep(MAX_FALLBACK_AGE_S - MAX_AGE_S)
    with pytest.raises(JobValueError, match="exit code 3"):
        secrets.read(token)


def test_many_runs_ask_a_command_once(tmp_path: Path) -> None:
    secrets, token = CommandSecrets(ENVIRONMENT), counting(tmp_path)
    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(lambda _: secrets.read(token), range(20))) == ["1"] * 20


def test_runs_that_wait_for_a_command_share_its_failure(tmp_path: Path) -> None:
    secrets, token = CommandSecrets(ENVIRONMENT), secret("printf x >>calls; sleep 1; false", tmp_path)
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(secrets.read, token) for _ in range(8)]
    assert all(isinstance(read.exception(), JobValueError) for read in reads)
    assert len((tmp_path / "calls").read_text()) == 1
    with pytest.raises(JobValueError):
        secrets.read(token)
    assert len((tmp_path / "calls").read_text()) == 2


def test_a_driver_takes_over_what_is_known(tmp_path: Path) -> None:
    clock, later = FakeClock(5000.0), FakeClock(7.0)
    first, second = CommandSecrets(ENVIRONMENT, now=clock.now), CommandSecrets({}, now=later.now)
    assert first.hand_over() == b""
    token = counting(tmp_path)
    first.read(token)
    clock.sleep(MAX_AGE_S - 10)
    second.take_over(first.hand_over())
    assert second.known(token) == second.read(token) == "1"
    assert second.known(replace(token, name="OTHER")) == "1"


@pytest.mark.parametrize("content", [b"", b"[", b'[{"command": "a'])
def test_half_of_what_was_known_is_nothing(content: bytes) -> None:
    secrets = CommandSecrets({})
    secrets.take_over(content)
    assert secrets.hand_over() == b""


def test_a_command_may_ask_at_the_terminal(tmp_path: Path) -> None:
    program = (
        "import os; from vastrun.launcher.bundle.secret_command import CommandSecrets as C; "
        "from vastrun.launcher.core.job import Secret as S; "
        "ask = 'printf Passphrase: >/dev/tty; read -r word </dev/tty; echo $word'; "
        "print('got', C(os.environ).read(S(name='TOKEN', command=ask))[::-1])"
    )
    environ = {"PATH": os.environ["PATH"]}
    with pty([sys.executable, "-c", program], columns=80, cwd=tmp_path, environ=environ) as opened:
        opened.shows("Passphrase:")
        opened.press("olleh\r")
        opened.shows("got hello")
