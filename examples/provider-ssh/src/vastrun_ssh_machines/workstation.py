"""WorkstationShell: the verbs of machine.sh on one workstation. Unable to ask is never an answer."""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import AuthError, HostKeyError, ProviderError, UnreachableError, UsageError
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ports import Remote
from vastrun.launcher.ssh.connection import ConnectTimeouts, KeyRejectedError, Login
from vastrun.launcher.ssh.keys import KeyPair, KnownHosts
from vastrun.launcher.ssh.remote import SshRemote
from vastrun_ssh_machines.answers import MachineAnswer, parse_answer
from vastrun_ssh_machines.machines_file import Workstation

_LIST_S = 30.0
_CHANGE_S = 150.0
"""Seconds for a box to be made, or for its processes to end and its folder to go."""


class WorkstationShell:
    """One connection, one verb at a time: several runs ask the same workstation.

    Every verb raises UnreachableError while nobody answers, AuthError when the key is rejected.
    """

    def __init__(self, machine: Workstation, state: Path, timeouts: ConnectTimeouts | None = None) -> None:
        """`state`: the folder where host keys are noted."""
        self.machine = machine
        self._state = state
        self._timeouts = timeouts or ConnectTimeouts()
        self._lock = threading.Lock()
        self._shell: Remote | None = None

    def list(self) -> MachineAnswer:
        """Return the boxes that are there, and the free disk."""
        return self._run("list", timeout_s=_LIST_S)

    def rent(self, name: str, wanted_gpus: int, lease: str, env: Mapping[str, str]) -> MachineAnswer:
        """Make a box and arm its lease, or say why not."""
        machine = self.machine
        words = [name, str(machine.slots), str(machine.gpus), str(wanted_gpus), lease]
        variables = [f"{key}={value}" for key, value in env.items()]
        return self._run("rent", *words, *variables, timeout_s=_CHANGE_S)

    def arm(self, name: str) -> MachineAnswer:
        """Have the box's lease at work, as after a restart of the workstation; safe to repeat."""
        return self._run("arm", name, timeout_s=_CHANGE_S)

    def destroy(self, name: str, lease: str) -> None:
        """Kill what the box started, wherever it hid, and remove its folder; safe to repeat."""
        self._run("destroy", name, lease, timeout_s=_CHANGE_S)

    def remote(self, root: str, env: Mapping[str, str], is_gone: Callable[[], bool]) -> SshRemote:
        """Return a shell in that folder, over a connection of its own."""
        return SshRemote(self._login(), root=root, env=env, is_gone=is_gone)

    def home(self) -> str:
        """Return the absolute path of the boxes' folder."""
        if self.machine.folder.startswith("/"):
            return self.machine.folder
        with self._lock, self._reaching():
            printed = self._connected().run("cd && pwd", timeout_s=_LIST_S).stdout
        home = printed.strip()
        if not home.startswith("/") or "\n" in home or len(home) > 1000:
            raise UnreachableError(
                f"{self.machine.name} does not say where your home is", cause=Cause.PROVIDER
            )
        return f"{home}/{self.machine.folder}"

    def _run(self, verb: str, *words: str, timeout_s: float) -> MachineAnswer:
        argv = ["bash", "-c", _script(), "machine.sh", self.machine.folder, verb, *words]
        with self._lock, self._reaching():
            done = self._connected().run(f"exec {shlex.join(argv)}", timeout_s=timeout_s)
        if done.exit_code != 0:
            why = one_line(done.stderr[-300:]).strip() or f"exit code {done.exit_code}"
            raise ProviderError(f"{self.machine.name}: {why}")
        return parse_answer(done.stdout, self.machine.name)

    def _connected(self) -> Remote:
        if self._shell is None:
            self._shell = self.remote(".", {}, lambda: False)
        return self._shell

    def _login(self) -> Login:
        machine = self.machine
        key = Path(machine.key).expanduser()
        if not key.is_file():
            raise UsageError(f"ssh-machines: {machine.name}: there is no key {key}")
        return Login(
            addresses=[(machine.host, machine.port)],
            key=KeyPair(public="", private_path=key),
            hosts=KnownHosts(
                self._state / f"known_hosts-{machine.name}", read_fingerprints=self._fingerprints
            ),
            user=machine.user,
            timeouts=self._timeouts,
        )

    def _fingerprints(self) -> Sequence[str]:
        return () if self.machine.host_key is None else (self.machine.host_key,)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Name the workstation in every error. That it is silent says nothing of its boxes."""
        name = self.machine.name
        try:
            yield
        except HostKeyError as error:
            known = self._state / f"known_hosts-{name}"
            hint = f"if {name} was installed anew, correct its host_key, or remove {known}"
            raise HostKeyError(f"{name}: {error}", hint=hint) from error
        except KeyRejectedError as error:
            hint = f"ssh-copy-id -p {self.machine.port} {self.machine.user}@{self.machine.host}"
            raise AuthError(f"{name} does not accept your key {self.machine.key}", hint=hint) from error
        except UnreachableError as error:
            raise UnreachableError(f"{name} cannot be reached: {error}", cause=Cause.PROVIDER) from error


@cache
def _script() -> str:
    return Path(__file__).with_name("machine.sh").read_text(encoding="utf-8")
