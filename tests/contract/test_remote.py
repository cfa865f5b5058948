"""What every shell on a machine promises."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.markets import Market
from tests.waiting import LONGEST_S, eventually
from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import BoxError, GoneError, ProviderError, UnreachableError
from vastrun.launcher.ports import OpensTerminal, Remote


def test_what_is_written_is_read(remote: Remote) -> None:
    content = bytes(range(256)) * 10
    remote.write("inbox/data", content)
    assert remote.read("inbox/data") == content


def test_writing_again_replaces_the_whole_file(remote: Remote) -> None:
    remote.write("note", b"a long first version")
    remote.write("note", b"short")
    assert remote.read("note") == b"short"


def test_a_file_that_was_put_is_read(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"\0content")
    remote.put(str(tmp_path / "here"), "inbox/there")
    assert remote.read("inbox/there") == b"\0content"


def test_reading_starts_at_the_offset_and_ends_at_the_limit(remote: Remote) -> None:
    remote.write("digits", b"0123456789")
    assert remote.read("digits", offset=3, limit=4) == b"3456"


def test_reading_past_the_end_gives_nothing(remote: Remote) -> None:
    remote.write("digits", b"0123456789")
    assert remote.read("digits", offset=10) == b""
    assert remote.read("digits", offset=99) == b""


def test_reading_what_is_not_there_gives_nothing(remote: Remote) -> None:
    assert remote.read("no/such/file") == b""


def test_a_box_goes_on_when_its_connection_is_closed(
    open_market: Market, machine: Instance, remote: Remote
) -> None:
    remote.write("note", b"still here")
    remote.close()
    assert open_market.provider.connect(machine).read("note") == b"still here"


def test_every_verb_on_a_box_that_is_no_more_says_so(open_market: Market, tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"content")
    verbs: tuple[Callable[[Remote], object], ...] = (
        lambda remote: remote.run("true", timeout_s=LONGEST_S),
        lambda remote: remote.write("note", b"content"),
        lambda remote: remote.put(str(tmp_path / "here"), "inbox/there"),
        lambda remote: remote.read("note"),
    )
    provider = open_market.provider
    ended = provider.rent(open_market.order("vastrun-warm-otter-77aa"))
    remotes = [provider.connect(ended) for _ in verbs]
    provider.destroy(ended.id)
    for verb, remote in zip(verbs, remotes, strict=True):
        with pytest.raises(GoneError):
            verb(remote)
    assert ended.id not in [instance.id for instance in provider.instances()]


def test_a_command_gives_its_exit_code_and_both_its_outputs(shell: Remote) -> None:
    done = shell.run("echo out; echo err >&2; exit 3", timeout_s=LONGEST_S)
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")


def test_a_command_runs_in_the_folder_of_the_box(shell: Remote) -> None:
    shell.write("note", b"from the box")
    assert shell.run("cat note", timeout_s=LONGEST_S).stdout == "from the box"
    assert shell.run('[ "$PWD" = "$VASTRUN_BOX" ]', timeout_s=LONGEST_S).exit_code == 0


def test_a_command_sees_the_order_s_variables(shell: Remote) -> None:
    assert shell.run("echo $LEASE_LIFE_S", timeout_s=LONGEST_S).stdout == "3600\n"


@pytest.mark.parametrize("make", ["mkfifo odd", "mkdir odd", "ln -s /dev/zero odd"])
def test_what_is_no_file_is_not_read(shell: Remote, make: str) -> None:
    assert shell.run(f"rm -rf odd && {make}", timeout_s=LONGEST_S).exit_code == 0
    with pytest.raises(BoxError, match="cannot read odd: it is no file"):
        shell.read("odd")


def test_output_that_is_not_text_is_no_error(shell: Remote) -> None:
    assert "\N{REPLACEMENT CHARACTER}" in shell.run("printf '\\377'", timeout_s=LONGEST_S).stdout


def test_a_command_without_an_answer_in_time_is_unreachable_and_ended(shell: Remote) -> None:
    with pytest.raises(UnreachableError, match="no answer within"):
        shell.run("echo $$ >pid; sleep 60", timeout_s=4)  # enough for a busy computer to begin it
    pid = shell.read("pid").decode().strip()
    assert pid.isdigit()
    alive = f"grep -s '^State:.[^Z]' /proc/{pid}/status"  # Z: ended, and nobody has asked how
    eventually(lambda: shell.run(alive, timeout_s=LONGEST_S).exit_code != 0, what="its end")


def test_a_written_file_has_the_mode_that_was_asked_for(shell: Remote) -> None:
    shell.write("inbox/secrets.env", b"A='b'\n", mode=0o600)
    assert shell.run("stat -c %a inbox/secrets.env", timeout_s=LONGEST_S).stdout == "600\n"


def test_nothing_of_an_unfinished_file_is_left(shell: Remote, tmp_path: Path) -> None:
    before = shell.run("ls -A inbox", timeout_s=LONGEST_S).stdout
    with pytest.raises(ProviderError, match="No such file"):
        shell.put(str(tmp_path / "not here"), "inbox/new")
    assert shell.run("ls -A inbox", timeout_s=LONGEST_S).stdout == before


@pytest.mark.needs("ssh")
def test_the_users_own_command_runs_in_the_folder_of_the_box(shell: Remote) -> None:
    if not isinstance(shell, OpensTerminal):
        pytest.skip("nobody can log in there")
    shell.write("note", b"from the box")
    program = shell.terminal("cat note; exit 3")
    done = subprocess.run(
        program.argv, cwd=program.cwd, env=program.env, capture_output=True, text=True, timeout=LONGEST_S
    )
    assert (done.returncode, done.stdout) == (3, "from the box"), done.stderr
