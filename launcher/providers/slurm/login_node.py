"""Login node: runs Slurm's commands and sees the shared disk; the shell on a job's node goes through it."""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path

from vastrun.contract import layout
from vastrun.launcher.core import Cause, CommandResult, LocalProgram, errors
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.slurm import summarize_errors
from vastrun.launcher.ports import Remote
from vastrun.launcher.providers.local.remote import LocalRemote
from vastrun.launcher.providers.slurm.batch import ask_argv
from vastrun.launcher.ssh.client_options import LOGIN_SHELL, login_argv
from vastrun.launcher.ssh.connection import KeyRejectedError, Login
from vastrun.launcher.ssh.keys import Address, KeyPair, KnownHosts
from vastrun.launcher.ssh.remote import SshRemote

_OUTPUT_MARK = "@begin"
_QUERY_TIMEOUT_S = 60.0
_FOLDER = ".local/state/vastrun/slurm"
_LOGIN = re.compile(r"([\w.-]+)@([\w.-]+|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?", re.ASCII)
_CONFIG = "vastrun config set slurm."
_ACCEPT_TIMEOUT_S = 15.0
"""Seconds for a job to accept a command, including the delay of NFS."""
_RESPONSE = re.compile(r"ended (\d{1,3})|late|silent")


def _parse_login(text: str) -> tuple[str, Address]:
    """Parse `USER@HOST[:PORT]`. Raises UsageError."""
    found = _LOGIN.fullmatch(text)
    if not found or not 0 < int(found[3] or 22) < 65536:
        raise errors.UsageError(f"slurm.login: expected USER@HOST or USER@HOST:PORT, got {text!r}")
    return found[1], (found[2].strip("[]"), int(found[3] or 22))


class LoginNode:
    """Runs commands on the login node, one at a time. A failed command always raises."""

    def __init__(self, settings: SlurmSettings, state: Path, environ: Mapping[str, str]) -> None:
        """`environ`: environment of Slurm's commands on this computer; no job inherits it."""
        self._settings, self._state = settings, state
        self.environment: Mapping[str, str] = dict(environ)
        self.address: Address | None = None
        """Host and port of the login node; None for this computer."""
        if settings.login is not None:
            self._user, self.address = _parse_login(settings.login)
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Name for messages."""
        return f"login node {self.address[0]}" if self.address else "this computer"

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
            raise errors.ProviderError(
                f"{self.name} does not report your home", hint=f"{_CONFIG}folder /PATH"
            )
        return f"{home}/{(chosen or _FOLDER).removeprefix('~/')}"

    def query(self, script: str, *, timeout_s: float = _QUERY_TIMEOUT_S) -> str:
        """Run the script and return its output. Raises UnreachableError when it failed, AuthError."""
        done = self.run(script, timeout_s=timeout_s)
        if done.exit_code != 0:
            raise errors.UnreachableError(
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
        too_much = partial(errors.UnreachableError, cause=Cause.PROVIDER)
        budget = ExchangeBudget(caps.EXCHANGES["slurm"], now=time.monotonic, sender=self.name, error=too_much)
        budget.spend(items=printed.count("\n"), memory=len(done.stdout) + len(done.stderr))
        if not mark:
            raise errors.UnreachableError(f"{self.name}: its shell does not work", cause=Cause.PROVIDER)
        return CommandResult(exit_code=done.exit_code, stdout=printed, stderr=done.stderr)

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
            return LocalRemote(Path(root), {**self.environment, **env})
        return SshRemote(self.login(), root=root, env=env, is_gone=is_gone)

    def login(self) -> Login:
        """Return the login. Raises UsageError when a setting is missing."""
        assert self.address is not None
        fingerprint, (host, port) = self._settings.host_key, self.address
        if fingerprint is None:
            raise errors.UsageError(
                f"slurm.host_key is not set, so the host key of {host} cannot be checked",
                hint=f"`ssh-keyscan -p {port} {host} | ssh-keygen -lf -` shows it; compare "
                f"that with what your site publishes, then: {_CONFIG}host_key SHA256:…",
            )
        key = Path(self._settings.key).expanduser()
        if not key.is_file():
            raise errors.UsageError(
                f"slurm.key: there is no file {key}", hint=f"{_CONFIG}key ~/.ssh/id_ed25519"
            )
        known = self._state / "keys" / f"slurm-{host}-{fingerprint[-8:].replace('/', '_')}"
        return Login(
            addresses=[self.address],
            key=KeyPair(public="", private_path=key),
            hosts=KnownHosts(known, read_fingerprints=lambda: [fingerprint]),
            user=self._user,
        )

    @cached_property
    def _shell(self) -> Remote:
        return self.remote(str(Path.home()) if self.address is None else ".", {}, lambda: False)

    @contextlib.contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Map errors of the connection: an unreachable cluster says nothing about its jobs."""
        try:
            yield
        except errors.HostKeyError as error:
            raise errors.HostKeyError(
                str(error), hint="compare slurm.host_key with what your site publishes"
            ) from error
        except KeyRejectedError as error:
            raise errors.AuthError(
                f"{self.name} rejects your key", hint=f"ssh-copy-id, or {_CONFIG}key FILE"
            ) from error
        except errors.UnreachableError as error:
            raise errors.UnreachableError(f"{self.name}: {error}", cause=Cause.PROVIDER) from error


class SlurmRemote:
    """The Remote port for a job's box, which stays readable after the end of the job."""

    def __init__(
        self, inner: Remote, root: str, job: int | None, node: LoginNode, look: Callable[[], object]
    ) -> None:
        self._inner, self._root, self._job, self._node, self._look = inner, root, job, node, look

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        """Run a command on the job's node to its end; kill it after `timeout_s`."""
        if self._job is None:
            return self._inner.run(command, timeout_s=timeout_s)
        words = shlex.join(ask_argv(_ACCEPT_TIMEOUT_S, timeout_s, command))
        done = self._inner.run(words, timeout_s=2 * _ACCEPT_TIMEOUT_S + timeout_s + 30.0)
        first, _, printed = done.stdout.partition("\n")
        response = _RESPONSE.fullmatch(first[: caps.SLURM_REPLY_CHARACTERS])
        if response is None:
            self._inner.read(layout.LEASE_STATE)  # raises GoneError when the box is gone
            raise errors.BoxError(f"the job sent an unexpected response: {(first or done.stderr)[:60]!r}")
        if first == "late":
            raise errors.UnreachableError(f"no answer within {timeout_s:g} s: {command}")
        if response[1] is None:
            self._look()  # a job that fails says only for a moment which node it has lost
            raise errors.UnreachableError("the job does not answer")
        return CommandResult(exit_code=int(response[1]), stdout=printed, stderr=done.stderr)

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return a shell in the job's allocation; for an ended job, in its box on the shared disk."""
        self._inner.read(layout.LEASE_STATE)  # raises GoneError when the box is gone
        words = ["bash", "-c", command or LOGIN_SHELL]
        if self._job is not None:
            step = ("--overlap", f"--jobid={self._job}", "--ntasks=1", f"--chdir={self._root}")
            words = ["srun", "--quiet", *step, *([] if command else ["--pty"]), *words]
        if self._node.address is None:
            return LocalProgram(argv=words, cwd=self._root, env=self._node.environment)
        line = f"exec bash -lc {shlex.quote('exec ' + shlex.join(words))}"
        argv = login_argv(self._node.login(), self._node.address, self._root, line)
        return LocalProgram(argv=[word if word != "-T" or command else "-t" for word in argv])

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:
        """Raise UsageError: many sites only allow logins to nodes through Slurm."""
        del local_port
        hint = f"vastrun ssh RUN hostname names the node; then: ssh -L PORT:NODE:{port} LOGIN"
        raise errors.UsageError("ports of a Slurm node are not forwarded", hint=hint)

    def put(self, local_path: str, path: str) -> None:
        self._inner.put(local_path, path)

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        self._inner.write(path, content, mode=mode)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        return self._inner.read(path, offset=offset, limit=limit)

    def close(self) -> None:
        self._inner.close()

    def finalize_killed_run(self) -> None:
        """Write the exit code and manifest of a killed run, which its job had no time to write.

        Raises UnreachableError while another process holds the lock of the run.
        """
        script = f"[ -e {layout.EXIT} ] || bash onstart/run.sh bury"
        done = self._inner.run(script, timeout_s=120.0)
        if not self._inner.read(layout.EXIT, limit=1):
            raise errors.UnreachableError(
                f"the job has ended, but its run has not: {done.stderr.strip()[-200:]}"
            )
