"""The login node: where Slurm's commands run and the shared disk is seen. It may be this computer."""

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

from vastrun.launcher.core import Cause, Completed
from vastrun.launcher.core.errors import AuthError, HostKeyError, ProviderError, UnreachableError, UsageError
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.budget import ExchangeBudget
from vastrun.launcher.gate.slurm import summarize_errors
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.local.remote import LocalRemote
from vastrun.launcher.ssh.connection import KeyRejectedError, Login
from vastrun.launcher.ssh.hosts import KnownHosts
from vastrun.launcher.ssh.keys import KeyPair
from vastrun.launcher.ssh.noise import NoiseFilter
from vastrun.launcher.ssh.remote import SshRemote

_BEGIN = "@begin"
_QUESTION_S = 60.0
_FOLDER = ".local/state/vastrun/slurm"
_LOGIN = re.compile(r"([\w.-]+)@([\w.-]+|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?", re.ASCII)
_CONFIG = "vastrun config set slurm."


@dataclass(frozen=True, kw_only=True)
class LoginAddress:
    """Who logs in where."""

    user: str
    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> LoginAddress:
        """Read `USER@HOST[:PORT]`. Raises UsageError."""
        found = _LOGIN.fullmatch(text)
        if not found or not 0 < int(found[3] or 22) < 65536:
            raise UsageError(f"slurm.login: expected USER@HOST or USER@HOST:PORT, got {text!r}")
        return cls(user=found[1], host=found[2].strip("[]"), port=int(found[3] or 22))


class LoginNode:
    """Runs commands there, one at a time. Unable to ask is never an answer."""

    def __init__(self, settings: SlurmSettings, state: Path, environ: Mapping[str, str]) -> None:
        """`environ`: of this computer, for Slurm's own commands; no job inherits it."""
        self._settings, self._state, self._environ = settings, state, dict(environ)
        self.address = None if settings.login is None else LoginAddress.of(settings.login)
        """None: it is this computer."""
        self._lock = threading.Lock()

    @property
    def environment(self) -> Mapping[str, str]:
        """What Slurm's commands need on this computer."""
        return self._environ

    @property
    def name(self) -> str:
        """In words."""
        return f"login node {self.address.host}" if self.address else "this computer"

    @cached_property
    def folder(self) -> str:
        """Where the boxes are, absolute. Raises ProviderError."""
        chosen = self._settings.folder
        if chosen is not None and chosen.startswith("/"):
            return chosen.rstrip("/") or "/"
        if self.address is None:
            return str(self._state / "slurm" if chosen is None else Path.home() / chosen.removeprefix("~/"))
        home = self.asked("cd && pwd").strip()
        if not home.startswith("/") or "\n" in home or len(home) > 1000:
            raise ProviderError(f"{self.name} does not say where your home is", hint=f"{_CONFIG}folder /PATH")
        return f"{home}/{(chosen or _FOLDER).removeprefix('~/')}"

    def asked(self, script: str, *, timeout_s: float = _QUESTION_S) -> str:
        """Return what the script printed. Raises UnreachableError where it failed, AuthError."""
        done = self.ran(script, timeout_s=timeout_s)
        if done.exit_code != 0:
            raise UnreachableError(
                f"{self.name} does not answer: {summarize_errors(done.stderr) or 'no reason given'}",
                cause=Cause.PROVIDER,
            )
        return done.stdout

    def ran(self, script: str, *, timeout_s: float = _QUESTION_S) -> Completed:
        """Run the script to its end, as the user who logs in would. Raises UnreachableError, AuthError."""
        # What a user's profile prints comes before the script's own words.
        marked = f"printf '\\n{_BEGIN}\\n'; {script}"
        words = marked if self.address is None else f"bash -lc {shlex.quote(marked)}"
        with self._lock, self._reaching():
            done = self._shell.run(words, timeout_s=timeout_s)
        _, begun, printed = done.stdout.partition(f"\n{_BEGIN}\n")
        self._budget().spend(items=printed.count("\n"), memory=len(done.stdout) + len(done.stderr))
        if not begun:
            raise UnreachableError(f"{self.name}: its shell does not work", cause=Cause.PROVIDER)
        return Completed(exit_code=done.exit_code, stdout=printed, stderr=done.stderr)

    def _budget(self) -> ExchangeBudget:
        def too_much(text: str) -> UnreachableError:
            return UnreachableError(text, cause=Cause.PROVIDER)

        return ExchangeBudget(caps.EXCHANGES["slurm"], now=time.monotonic, sender=self.name, error=too_much)

    def write(self, path: str, content: bytes) -> None:
        """Put a file into the boxes' folder, readable by the user alone."""
        with self._lock, self._reaching():
            remote = self.remote(self.folder, {}, lambda: False)
            try:
                remote.write(path, content)
            finally:
                remote.close()

    def remote(self, root: str, env: Mapping[str, str], is_gone: Callable[[], bool]) -> Remote:
        """Return a shell there, in that folder."""
        if self.address is None:
            return LocalRemote(Path(root), {**self._environ, **env})
        return SshRemote(self.login(), root=root, env=env, is_gone=is_gone, noise=NoiseFilter())

    def login(self) -> Login:
        """Return how to get in. Raises UsageError where the settings do not say."""
        assert self.address is not None
        fingerprint, address = self._settings.host_key, self.address
        if fingerprint is None:
            raise UsageError(
                f"slurm.host_key is not set: nobody says which host key {address.host} has",
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
    def _reaching(self) -> Iterator[None]:
        """That the way to a cluster is broken says nothing of its jobs."""
        try:
            yield
        except HostKeyError as error:
            raise HostKeyError(
                str(error), hint="compare slurm.host_key with what your site publishes"
            ) from error
        except KeyRejectedError as error:
            raise AuthError(
                f"{self.name} does not accept your key", hint=f"ssh-copy-id, or {_CONFIG}key FILE"
            ) from error
        except UnreachableError as error:
            raise UnreachableError(f"{self.name}: {error}", cause=Cause.PROVIDER) from error
