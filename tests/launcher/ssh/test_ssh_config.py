"""Host blocks: the user's own programs go where the launcher has been, and nowhere else."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launcher.ssh.machine import RUN, Machine
from tests.launcher.ssh.test_client_options import kept_port
from tests.waiting import LONGEST_S
from vastrun.launcher.core import SshAccess
from vastrun.launcher.core.errors import ProviderError, StorageError, UsageError
from vastrun.launcher.ssh.client_options import UserSshConfig, client_options, host_block
from vastrun.launcher.ssh.remote import SshRemote

HOST = "vastrun-calm-heron-3f1a"
USERS_OWN = """\
Host *
    ProxyCommand false
    ForwardAgent yes
    StrictHostKeyChecking no
    VerifyHostKeyDNS yes
    User somebody-else
    RemoteCommand false
"""


@pytest.fixture
def block(shell: SshRemote) -> str:
    """As printed for the machine."""
    return host_block(HOST, shell.ssh_access(), ["a comment"])


@pytest.fixture
def config(block: str, tmp_path: Path) -> Path:
    """The block in a file, above what the user has for every host."""
    path = tmp_path / "ssh_config"
    path.write_text(block + USERS_OWN)
    return path


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=LONGEST_S, stdin=subprocess.DEVNULL)


def effective(config: Path, host: str = HOST) -> dict[str, str]:
    """The options as OpenSSH's client reads them; nothing is connected."""
    printed = run("ssh", "-G", "-F", config, host)
    assert printed.returncode == 0, printed.stderr
    return dict(line.split(" ", 1) for line in printed.stdout.splitlines() if " " in line)


def access(**changes: object) -> SshAccess:
    honest = SshAccess(
        host="203.0.113.4",
        port=41022,
        user="root",
        key_path="/k/id",
        known_hosts_path="/k/known",
        folder="/box",
    )
    return replace(honest, **changes)  # type: ignore[arg-type]


@pytest.mark.needs("ssh", "sshd")
@pytest.mark.parametrize(
    "copy",
    [
        pytest.param(("scp", "-F", "{config}"), id="scp"),
        pytest.param(("scp", "-O", "-F", "{config}"), id="scp, the older protocol"),
        pytest.param(("rsync", "-a", "-e", "ssh -F {config}"), id="rsync", marks=pytest.mark.needs("rsync")),
    ],
)
def test_files_are_copied_both_ways_through_the_block(
    copy: Sequence[str], machine: Machine, config: Path, tmp_path: Path
) -> None:
    words = [word.format(config=config) for word in copy]
    (tmp_path / "up").write_text("to the machine")
    (machine.box / "down").write_text("from the machine")
    sent = run(*words, tmp_path / "up", f"{HOST}:{machine.box}/up")
    fetched = run(*words, f"{HOST}:{machine.box}/down", tmp_path / "fetched")
    assert (sent.returncode, fetched.returncode) == (0, 0), sent.stderr + fetched.stderr
    assert (machine.box / "up").read_text() == "to the machine"
    assert (tmp_path / "fetched").read_text() == "from the machine"


@pytest.mark.needs("ssh", "sshd")
def test_sftp_lists_a_folder_through_the_block(machine: Machine, config: Path, tmp_path: Path) -> None:
    (machine.box / "weights.pt").touch()
    (tmp_path / "batch").write_text(f"ls -1 {machine.box}\n")
    done = run("sftp", "-F", config, "-b", tmp_path / "batch", HOST)
    assert done.returncode == 0, done.stderr
    assert "weights.pt" in done.stdout


@pytest.mark.needs("ssh", "sshd")
def test_an_editor_gets_a_shell_and_a_forwarded_port(machine: Machine, config: Path) -> None:
    """As VS Code starts its client: no terminal, a SOCKS port, a script on standard input."""
    with kept_port() as port:
        words = ["ssh", "-T", "-D", str(port), "-F", str(config), HOST, "bash"]
        script = f"cd {machine.box} && pwd"
        done = subprocess.run(words, input=script, capture_output=True, text=True, timeout=LONGEST_S)
    assert (done.returncode, done.stdout) == (0, f"{machine.box}\n"), done.stderr


@pytest.mark.needs("ssh", "sshd")
def test_another_host_key_is_refused(machine: Machine, config: Path) -> None:
    machine.change_host_key()
    done = run("ssh", "-F", config, HOST, "echo inside")
    assert (done.returncode, done.stdout) == (255, "")
    assert "Host key verification failed" in done.stderr


@pytest.mark.needs("ssh", "sshd")
def test_what_the_user_has_for_every_host_changes_nothing(config: Path, machine: Machine) -> None:
    options = effective(config)
    assert options["user"] == machine.sshd.user
    assert options["stricthostkeychecking"] == "true"
    assert options["forwardagent"] == "no"
    assert options["verifyhostkeydns"] == "false"
    assert "proxycommand" not in options
    assert "remotecommand" not in options


@pytest.mark.needs("ssh")
def test_a_path_with_spaces_and_percent_signs_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        host_block("h", access(key_path="/a b/100%h/id", known_hosts_path="/a b/100%h/known"), [])
    )
    options = effective(path, "h")
    assert options["identityfile"] in ("/a b/100%%h/id", "/a b/100%h/id")
    assert options["hostkeyalias"] == "[203.0.113.4]:41022"


@pytest.mark.needs("ssh", "sshd")
def test_a_key_in_a_folder_of_spaces_and_percents_opens_machines(shell: SshRemote, tmp_path: Path) -> None:
    honest, odd = shell.ssh_access(), tmp_path / "my state 100%h"
    odd.mkdir()
    shutil.copy(honest.key_path, odd / "id")
    shutil.copy(honest.known_hosts_path, odd / "known")
    path = tmp_path / "config"
    path.write_text(
        host_block("h", replace(honest, key_path=str(odd / "id"), known_hosts_path=str(odd / "known")), [])
    )
    done = run("ssh", "-F", path, "h", "echo inside")
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr


@pytest.mark.parametrize("path", ["relative", '/a"b', "/a\\b", "/a\nb", "/${HOME}"])
def test_a_path_that_the_client_cannot_be_given_is_an_error(path: str) -> None:
    with pytest.raises(UsageError, match="cannot be given this path"):
        client_options(access(key_path=path))


@pytest.mark.parametrize("name", ["", "*", "a b", "-o", "github.com", "!x", "a\nHost *", "x" * 64])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="Host block"):
        host_block(name, access(), [])


@pytest.mark.parametrize("user", ["", "-l", "a b", "root\nHost *", "%h", '"'])
def test_a_user_name_that_is_none_is_refused(user: str) -> None:
    with pytest.raises(ProviderError, match="user name"):
        client_options(access(user=user))


class TestUserSshConfig:
    """The files in ~/.ssh."""

    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        return tmp_path / "home of mine" / ".ssh"

    @pytest.mark.needs("ssh", "sshd")
    def test_the_line_comes_first_so_that_the_block_wins(self, home: Path, block: str) -> None:
        home.mkdir(parents=True)
        (home / "config").write_text(USERS_OWN)
        UserSshConfig(home).write(HOST, RUN, block)
        done = run("ssh", "-F", home / "config", HOST, "echo inside")
        assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
        assert (home / "config").read_text().endswith(USERS_OWN)

    def test_the_line_is_written_once(self, home: Path) -> None:
        for name in ("a", "b", "a"):
            UserSshConfig(home).write(name, RUN, f"Host {name}\n")
        assert (home / "config").read_text().count("Include ") == 1
        assert (home / "config").stat().st_mode & 0o777 == 0o600
        assert sorted(path.name for path in home.rglob("*") if path.is_file()) == [
            "a.conf",
            "b.conf",
            "config",
        ]

    def test_the_users_file_keeps_its_bytes_its_mode_and_its_link(self, home: Path, tmp_path: Path) -> None:
        home.mkdir(parents=True)
        dotfile = tmp_path / "dotfiles"
        dotfile.write_bytes(b"Host a\r\n  User \xff\r\n")
        dotfile.chmod(0o640)
        (home / "config").symlink_to(dotfile)
        UserSshConfig(home).write("b", RUN, "Host b\n")
        assert (home / "config").is_symlink()
        assert dotfile.read_bytes().endswith(b"Host a\r\n  User \xff\r\n")
        assert dotfile.stat().st_mode & 0o777 == 0o640

    def test_a_line_below_a_host_does_not_count(self, home: Path) -> None:
        home.mkdir(parents=True)
        line = f'Include "{home}/vastrun.d/*.conf"'
        (home / "config").write_text(f"Host work\n{line}\n")
        UserSshConfig(home).write("b", RUN, "Host b\n")
        assert (home / "config").read_text().splitlines()[1] == line

    def test_entries_of_ended_runs_and_deleted_keys_are_removed(self, home: Path, tmp_path: Path) -> None:
        key = tmp_path / "id"
        key.touch()
        config = UserSshConfig(home)
        for name, run_id, path in (("a", "open", key), ("b", "over", key), ("c", "open", tmp_path / "gone")):
            config.write(name, run_id, host_block(name, access(key_path=str(path)), []))
        (home / "vastrun.d" / "mine.conf").write_text("Host mine\n")
        assert config.remove_stale(lambda run_id: run_id == "over") == ["b", "c"]
        assert sorted(path.stem for path in (home / "vastrun.d").iterdir()) == ["a", "mine"]

    @pytest.mark.parametrize("is_link", [False, True])
    def test_a_file_of_the_user_is_not_replaced(self, home: Path, is_link: bool, tmp_path: Path) -> None:
        UserSshConfig(home).write("ours", RUN, "Host ours\n")
        theirs = home / "vastrun.d" / "mine.conf"
        if is_link:
            theirs.symlink_to(home / "vastrun.d" / "ours.conf")
        else:
            theirs.write_text("Host mine\n")
        before = theirs.read_text()
        with pytest.raises(UsageError, match="not of vastrun") as caught:
            UserSshConfig(home).write("mine", RUN, "Host mine\n    Port 1\n")
        assert "--name" in caught.value.hint
        assert (theirs.is_symlink(), theirs.read_text()) == (is_link, before)

    def test_what_cannot_be_written_is_said_with_what_to_do(self, home: Path) -> None:
        home.parent.mkdir()
        home.write_text("a file, where the folder should be")
        with pytest.raises(StorageError, match=re.escape(str(home))) as caught:
            UserSshConfig(home).write("a", RUN, "Host a\n")
        assert "without --write" in caught.value.hint
