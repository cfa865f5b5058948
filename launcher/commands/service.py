"""The user service of `vastrun serve --driver`: a systemd user unit, or a launchd agent on a Mac."""

from __future__ import annotations

import plistlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract.secrets import secrets_among, secrets_in
from vastrun.launcher.core.errors import StorageError, UsageError

UNIT = "vastrun.service"
LABEL = "vastrun.driver"
PASSED_VARIABLES = (
    *("PATH", "LANG", "VASTRUN_LEDGER", "VASTRUN_PYTHON", "VASTRUN_IMAGE_LOCK"),
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "VAST_URL", "VAST_LOGIN", "DOCKER_HOST"),
    *("SLURM_CONF", "PGPASSFILE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PYTHONPATH"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
)
"""Variables that are written into the service, where they are set and hold no secret."""
SECRET_VARIABLES = (
    *("VAST_API_KEY", "VASTRUN_TEAM_KEY", "VASTRUN_NOTIFY", "VASTRUN_NOTIFY_COMMAND", "WANDB_API_KEY"),
)
"""Variables that the service may need and that are never written into it."""
_SHELL_COMMAND = 'set -a; [ ! -r "$1" ] || . "$1"; set +a; shift; exec "$@"'
"""launchd has no file of variables: a shell reads it."""


@dataclass(frozen=True, kw_only=True)
class UserService:
    """A file of the service manager, and what a user does with it."""

    path: Path
    content: bytes
    secrets_file: Path
    """The user's own file of variables, which the service reads."""
    left_out: Sequence[str]
    """Names of variables that are set here and secret: they are not in the file."""
    start: Sequence[str]
    """The commands that start the service."""
    stop: Sequence[str]
    """The commands that end it."""
    log: str
    """The command that shows its log."""

    def install(self) -> None:
        """Write the file. Raises StorageError."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(self.content)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from error

    def uninstall(self) -> None:
        """Remove the file. Raises UsageError where there is none."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            raise UsageError(
                f"{self.path} is not there: no service is installed", hint="vastrun serve --install"
            ) from None
        except OSError as error:
            raise StorageError(f"cannot remove {self.path}: {error.strerror or error}") from error


def user_service(
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    platform: str,
    home: Path,
    state: Path,
    folder: Path,
) -> UserService:
    """Make the service for that platform. `folder`: the outputs come to runs/ and batches/ below it."""
    passed = {name: environ[name] for name in PASSED_VARIABLES if environ.get(name)}
    known = ("\n", *(value for value in secrets_among(environ) if value))
    secret = [
        name for name, value in passed.items() if any(secrets_in(value)) or any(one in value for one in known)
    ]
    passed = {name: value for name, value in passed.items() if name not in secret}
    left_out = [*secret, *(name for name in SECRET_VARIABLES if environ.get(name))]
    config = _folder(environ, "XDG_CONFIG_HOME", home / ".config")
    secrets_file = config / "vastrun" / "serve.env"
    if platform == "darwin":
        log = state / "serve.log"
        path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        return UserService(
            path=path,
            content=_plist(command, passed, folder, secrets_file, log),
            secrets_file=secrets_file,
            left_out=left_out,
            start=(f"launchctl bootstrap gui/$(id -u) '{path}'",),
            stop=(f"launchctl bootout gui/$(id -u)/{LABEL}",),
            log=f"tail -f '{log}'",
        )
    return UserService(
        path=config / "systemd" / "user" / UNIT,
        content=_unit(command, passed, folder, secrets_file).encode(),
        secrets_file=secrets_file,
        left_out=left_out,
        start=("systemctl --user daemon-reload", f"systemctl --user enable --now {UNIT}"),
        stop=(f"systemctl --user disable --now {UNIT}",),
        log=f"journalctl --user -u {UNIT}",
    )


def _folder(environ: Mapping[str, str], variable: str, default: Path) -> Path:
    value = environ.get(variable, "")
    return Path(value) if value.startswith("/") else default


def _unit(command: Sequence[str], variables: Mapping[str, str], folder: Path, secrets_file: Path) -> str:
    environment = "".join(f"Environment={_quoted(f'{name}={value}')}\n" for name, value in variables.items())
    program, *arguments = (_quoted(word) for word in command)
    # Variables are replaced in arguments only.
    words = " ".join([program, *(word.replace("$", "$$") for word in arguments)])
    return f"""\
[Unit]
Description=vastrun: drives runs and batches that have no launcher

[Service]
ExecStart={words}
WorkingDirectory={_specifiers(str(folder))}
{environment}EnvironmentFile=-{_specifiers(str(secrets_file))}
Restart=on-failure
RestartSec=30
# The runs on this computer, and background drivers, outlive a restart of the service.
KillMode=process

[Install]
WantedBy=default.target
"""


def _quoted(text: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", text)
    return f'"{_specifiers(escaped)}"'


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _plist(
    command: Sequence[str], variables: Mapping[str, str], folder: Path, secrets_file: Path, log: Path
) -> bytes:
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": ["/bin/sh", "-c", _SHELL_COMMAND, "sh", str(secrets_file), *command],
            "WorkingDirectory": str(folder),
            "EnvironmentVariables": dict(variables),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 30,
            "AbandonProcessGroup": True,
            "StandardOutPath": str(log),
            "StandardErrorPath": str(log),
        }
    )
