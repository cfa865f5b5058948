"""Login node: runs Slurm's commands and sees the shared disk. It may be this computer."""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vastrun.launcher.core import Cause, CommandResult
from vastrun.launcher.core.errors import AuthError, HostKeyError, ProviderError, UnreachableError, UsageError
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.slurm import summarize_errors
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.local.remote import LocalRemote
from vastrun.launcher.ssh.connection import KeyRejectedError, Login
from vastrun.launcher.ssh.hosts import KnownHosts
from vastrun.launcher.ssh.keys import KeyPair
from vastrun.launcher.ssh.noise import NoiseFilter
from vastrun.launcher.ssh.remote import SshRemote

_OUTPUT_MARK = "@begin"
_QUERY_TIMEOUT_S = 60.0
_FOLDER = ".local/state/vastrun/slurm"
_LOGIN = re.compile(r"([\w.-]+)@([\w.-]+|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?", re.ASCII)
_CONFIG = "vastrun config set slurm."


@dataclass(frozen=True, kw_only=True)
class LoginAddress:
    """User, host and port of a login."""

    user: str
    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> LoginAddress:
        """Parse `USER@HOST[:PORT]`. Raises UsageError."""
        found = _LOGIN.fullmatch(text)
        if not found or not 0 < int(found[3] or 22) < 65536:
            raise UsageError(f"slurm.login: expected USER@HOST or USER@HOST:PORT, got {text!r}")
        return cls(user=found[1], host=found[2].strip("[]"), port=int(found[3] or 22))


class LoginNode:
    """Runs commands on the login node, one at a time. A failed command always raises."""

    def __init__(self, settings: SlurmSettings, state: Path, environ: Mapping[str, str]) -> None:
        """`environ`: environment of Slurm's commands on this computer; no job inherits it."""
        self._settings, self._state, self._environ = settings, state, dict(environ)
        self.address = None if settings.login is None else LoginAddress.of(settings.login)
        """Address of the login node; None for this computer."""
        self._lock = threading.Lock()

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of Slurm's commands on this computer."""
        return self._environ

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"login node {self.address.host}" if self.address else "this computer"

    @cached_property
    def folder(self) -> str:
        """Absolute path of the boxes' folder. Raises ProviderError."""
        chosen = self._settings.folder
        if chosen is not None and chosen.startswith("/"):
            return chosen.rstrip("/") or "/"
        if self.address is None:
            return str(self._state / "slurm" if chosen is None else Path.home() / chosen.removeprefix("~/"))
        home = self.query("cd && pwd").strip()
        if not home.startswith("/") or "\n" in home or len(home) > 1000:
            raise ProviderError(f"{self.name} does not report your home", hint=f"{_CONFIG}folder /PATH")
        return f"{home}/{(chosen or _FOLDER).removeprefix('~/')}"

    def query(self, script: str, *, timeout_s: float = _QUERY_TIMEOUT_S) -> str:
        """Run the script and return its output. Raises UnreachableError when it failed, AuthError."""
        done = self.run(script, timeout_s=timeout_s)
        if done.exit_code != 0:
            raise UnreachableError(
                f"{self.name} does not answer: {summarize_errors(done.stderr) or 'no reason given'}",
                cause=Cause.PROVIDER,
            )
        return done.stdout

    def run(self, script: str, *, timeout_s: float = _QUERY_TIMEOUT_S) -> CommandResult:
        """Run the script to its end in a login shell. Raises UnreachableError, AuthError."""
        # A login shell's profile may print before the script does.
        marked = f"printf '\\n{_OUTPUT_MARK}\\n'; {script}"
        words = marked if self.address is None else f"bash -lc {shlex.quote(marked)}"
        with self._lock, self._mapped_errors():
            done = self._shell.run(words, timeout_s=timeout_s)
        _, mark, printed = done.stdout.partition(f"\n{_OUTPUT_MARK}\n")
        self._budget().spend(items=printed.count("\n"), memory=len(done.stdout) + len(done.stderr))
        if not mark:
            raise UnreachableError(f"{self.name}: its shell does not work", cause=Cause.PROVIDER)
        return CommandResult(exit_code=done.exit_code, stdout=printed, stderr=done.stderr)

    def _budget(self) -> ExchangeBudget:
        def too_much(text: str) -> UnreachableError:
            return UnreachableError(text, cause=Cause.PROVIDER)

        return ExchangeBudget(caps.EXCHANGES["slurm"], now=time.monotonic, sender=self.name, error=too_much)

    def write(self, path: str, content: bytes) -> None:
        """Write a file into the boxes' folder, readable by the user alone."""
        with self._lock, self._mapped_errors():
            remote = self.remote(self.folder, {}, lambda: False)
            try:
                remote.write(path, content)
            finally:
                remote.close()

    def remote(self, root: str, env: Mapping[str, str], is_gone: Callable[[], bool]) -> Remote:
        """Return a shell on the login node, in the folder `root`."""
        if self.address is None:
            return LocalRemote(Path(root), {**self._environ, **env})
        return SshRemote(self.login(), root=root, env=env, is_gone=is_gone, noise=NoiseFilter())

    def login(self) -> Login:
        """Return the login. Raises UsageError when a setting is missing."""
        assert self.address is not None
        fingerprint, address = self._settings.host_key, self.address
        if fingerprint is None:
            raise UsageError(
                f"slurm.host_key is not set, so the host key of {address.host} cannot be checked",
                hint=f"`ssh-keyscan -p {address.port} {address.host} | ssh-keygen -lf -` shows it; compare "
                f"that with what your site publishes, then: {_CONFIG}host_key SHA256:…",
            )
        key = Path(self._settings.key).expanduser()
        if not key.is_file():
            raise UsageError(f"slurm.key: there is no file {key}", hint=f"{_CONFIG}key ~/.ssh/id_ed25519")
        known = self._state / "keys" / f"slurm-{address.host}-{fingerprint[-8:].replace('/', '_')}"
        return Login(
            addresses=[(address.host, address.port)],
            key=KeyPair(public="", private_path=key),
            hosts=KnownHosts(known, read_fingerprints=lambda: [fingerprint]),
            user=address.user,
        )

    @cached_property
    def _shell(self) -> Remote:
        return self.remote(str(Path.home()) if self.address is None else ".", {}, lambda: False)

    @contextlib.contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Map errors of the connection: an unreachable cluster says nothing about its jobs."""
        try:
            yield
        except HostKeyError as error:
            raise HostKeyError(
                str(error), hint="compare slurm.host_key with what your site publishes"
            ) from error
        except KeyRejectedError as error:
            raise AuthError(
                f"{self.name} rejects your key", hint=f"ssh-copy-id, or {_CONFIG}key FILE"
            ) from error
        except UnreachableError as error:
            raise UnreachableError(f"{self.name}: {error}", cause=Cause.PROVIDER) from error
