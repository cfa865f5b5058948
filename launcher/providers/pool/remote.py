"""A shell in a slot: that of its machine, with paths and commands within the slot."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from launcher.core import Completed, LocalProgram
from launcher.core.errors import BoxError, GoneError, UsageError
from launcher.ports import OpensTerminal, Remote
from launcher.ssh.terminal import LOGIN_SHELL
from trainer.contract import layout

NO_SLOT = 113
"""Exit code of onstart/slot.sh where there is no such slot."""
_CHECK_S = 60.0


class SlotRemote:
    """`Remote` says what each verb promises. A slot without a folder is gone."""

    def __init__(self, machine: Remote, name: str) -> None:
        self._machine, self._name = machine, name
        self._folder = f"{layout.SLOTS}/{name}"

    def __getattr__(self, name: str) -> Any:
        """What the machine's own shell can do besides: say how it knows the machine, count noise."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._machine, name)

    def run(self, command: str, *, timeout_s: float) -> Completed:
        """Run a command with the slot's environment and on its cores; return it once it is finished."""
        words = f"exec bash {layout.SLOT_SCRIPT} {shlex.quote(self._name)} {shlex.quote(command)}"
        done = self._machine.run(words, timeout_s=timeout_s)
        if done.exit_code == NO_SLOT:
            raise GoneError(f"there is no slot {self._name}")
        return done

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return a shell with the slot's environment and on its cores. Raises UsageError, GoneError."""
        self.check()
        if not isinstance(self._machine, OpensTerminal):
            raise UsageError("nobody can log in to the machine of this slot")
        words = (
            f"exec bash {layout.SLOT_SCRIPT} {shlex.quote(self._name)} {shlex.quote(command or LOGIN_SHELL)}"
        )
        return self._machine.terminal(words)

    def put(self, local_path: str, path: str) -> None:
        """Put the file into the slot, whole."""
        self._store(lambda: self._machine.put(local_path, self._at(path)))

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        """Put bytes from memory into a file, as `put`."""
        self._store(lambda: self._machine.write(self._at(path), content, mode=mode))

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        """Read up to `limit` bytes from `offset`."""
        try:
            content = self._machine.read(self._at(path), offset=offset, limit=limit)
        except BoxError as error:  # which names the file as the machine's own box has it
            raise BoxError(str(error).replace(self._at(path), path)) from error
        if not content:
            self.check()
        return content

    def close(self) -> None:
        """Close the connection; the slot goes on."""
        self._machine.close()

    def check(self) -> None:
        """Look whether the slot is there. Raises GoneError, UnreachableError."""
        self.run("true", timeout_s=_CHECK_S)

    def _store(self, store: Callable[[], None]) -> None:
        """Looks before, for a machine's shell makes the folders of what it writes."""
        self.check()
        store()

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}"
