"""The user service of `serve --driver`: its file, without secrets, as systemd and launchd read it."""

import plistlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from vastrun.launcher.commands.service import LABEL, UserService, user_service
from vastrun.launcher.core.errors import StorageError, UsageError

ENVIRON = {
    "PATH": "/usr/bin:/opt/a b/bin",
    "VASTRUN_LEDGER": "postgresql://me@db.lab/vastrun?sslmode=verify-full&x=100%",
    "XDG_STATE_HOME": "/data/state",
    "HTTPS_PROXY": "http://me:hidden-word@proxy:3128",
    "VAST_API_KEY": "vast-secret-1234",
    "VASTRUN_NOTIFY": "https://ntfy.sh/secret-topic",
    "VASTRUN_TEAM_KEY": "team-secret-1234",
    "EDITOR": "vi",
}
SECRETS = ("hidden-word", "vast-secret-1234", "secret-topic", "team-secret-1234")


def service(
    tmp_path: Path, platform: str = "linux", environ: Mapping[str, str] = ENVIRON, folder: str = "out 100%"
) -> UserService:
    command = [str(tmp_path / "my $bin" / "vastrun"), "serve", "--driver"]
    (tmp_path / "my $bin").mkdir(exist_ok=True)
    Path(command[0]).touch(mode=0o755)
    (tmp_path / folder).mkdir(exist_ok=True)
    return user_service(
        command, environ, platform=platform, home=tmp_path, state=tmp_path / "state", folder=tmp_path / folder
    )


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_no_secret_is_written_and_each_is_named(platform: str, tmp_path: Path) -> None:
    made = service(tmp_path, platform)
    assert not any(secret in made.content.decode() for secret in SECRETS)
    assert made.left_out == ["HTTPS_PROXY", "VAST_API_KEY", "VASTRUN_TEAM_KEY", "VASTRUN_NOTIFY"]


@pytest.mark.parametrize(
    "url", ["postgresql://me:word@db.lab/vastrun", "postgresql://db.lab/vastrun?user=me&password=word"]
)
def test_a_ledger_whose_url_has_a_password_is_not_written(url: str, tmp_path: Path) -> None:
    made = service(tmp_path, environ={"VASTRUN_LEDGER": url})
    assert b"word" not in made.content and made.left_out == ["VASTRUN_LEDGER"]


def test_the_unit_carries_what_finds_the_ledger_and_the_programs(tmp_path: Path) -> None:
    text = service(tmp_path).content.decode()
    assert 'Environment="PATH=/usr/bin:/opt/a b/bin"' in text
    assert 'Environment="XDG_STATE_HOME=/data/state"' in text
    assert "x=100%%" in text and "EDITOR" not in text
    assert f"WorkingDirectory={tmp_path}/out 100%%" in text
    assert "my $bin/vastrun" in text
    assert f"EnvironmentFile=-{tmp_path}/.config/vastrun/serve.env" in text


def test_the_agent_carries_the_same(tmp_path: Path) -> None:
    made = service(tmp_path, "darwin")
    assert made.path == tmp_path / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    document = plistlib.loads(made.content)
    assert document["Label"] == LABEL
    assert document["EnvironmentVariables"]["PATH"] == ENVIRON["PATH"]
    assert document["WorkingDirectory"] == f"{tmp_path}/out 100%"


def test_the_agents_shell_reads_the_file_of_secrets(tmp_path: Path) -> None:
    made = service(tmp_path, "darwin")
    made.secrets_file.parent.mkdir(parents=True)
    made.secrets_file.write_text("VAST_API_KEY=4711\n")
    words = plistlib.loads(made.content)["ProgramArguments"][:5]
    done = subprocess.run(
        [*words, "sh", "-c", "echo $VAST_API_KEY"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "4711\n"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    made = service(tmp_path)
    made.install()
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(made.path)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "vastrun" not in done.stderr, done.stderr


def test_it_is_installed_where_systemd_looks_and_removed_again(tmp_path: Path) -> None:
    made = service(tmp_path, environ={"XDG_CONFIG_HOME": str(tmp_path / "config")})
    with pytest.raises(UsageError):
        made.uninstall()
    made.install()
    made.install()
    assert made.path == tmp_path / "config" / "systemd" / "user" / "vastrun.service"
    made.uninstall()
    assert not made.path.exists()


def test_a_folder_that_takes_no_files_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    made = service(tmp_path, environ={"XDG_CONFIG_HOME": str(tmp_path / "config")})
    with pytest.raises(StorageError, match="cannot write"):
        made.install()
