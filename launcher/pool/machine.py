"""HeldMachine: client of a held machine's slots. Its responses pass the gate."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from vastrun.contract import layout
from vastrun.launcher.core import CommandResult, Instance, LocalProgram, RentalOrder, SshAccess
from vastrun.launcher.core.errors import BoxError, GoneError, ProviderError, UnreachableError, UsageError
from vastrun.launcher.core.labels import SlotId, SlotList
from vastrun.launcher.gate.box_reader import parse_slots
from vastrun.launcher.pool.held_machines import HeldMachineRow
from vastrun.launcher.ports import AllowsSsh, OpensTerminal, Provider, Remote, SeesGrowth, with_abilities
from vastrun.launcher.ssh.client_options import LOGIN_SHELL

_T = TypeVar("_T")

_CHANGE_TIMEOUT_S = 180.0
"""Seconds for a change: the removal of a slot waits until its GPUs' memory is free."""
NO_SLOT = 113
"""Exit code of onstart/slot.sh for a missing slot."""


class HeldMachine:
    """One held machine, reached through its provider. Calls of several runs are serialized."""

    def __init__(self, held: HeldMachineRow, provider: Provider) -> None:
        self.held = held
        self._provider = provider
        self._lock = threading.Lock()
        self._remote: Remote | None = None

    def slots(self) -> SlotList:
        """Return its slots; none when the machine is gone.

        Raises UnreachableError, BoxError; ProviderError.
        """
        try:
            return self._ask("list", timeout_s=60.0)
        except GoneError:
            if self._instance() is not None:
                raise UnreachableError(f"the box of {self.held.run.id} is being removed") from None
            return SlotList()

    def put_order(self, slot_id: SlotId, order: RentalOrder, units: int) -> None:
        """Upload the order, before any slot exists for it. Raises GoneError, ProviderError."""
        place = f"{layout.SLOT_ORDERS}/{slot_id.name}.json"
        # `SlotRequest` in onstart/holding/slots.py parses this.
        content = json.dumps(
            {
                "name": slot_id.name,
                "id": str(slot_id),
                "label": order.label,
                "units": units,
                "gpus": order.offer.gpus,
                "memory_gb": order.memory_gb,
                "lease": order.onstart,
                "env": dict(order.env),
            }
        ).encode()
        with self._lock:
            self._call(lambda remote: remote.write(place, content))

    def rent(self, name: str) -> SlotList:
        """Order a slot once; return the machine's slots. After any error the slot may exist.

        Raises GoneError, ProviderError.
        """
        return self._ask("rent", name, timeout_s=_CHANGE_TIMEOUT_S)

    def destroy(self, name: str) -> SlotList:
        """Remove the slot; return the machine's slots. Raises GoneError, ProviderError."""
        return self._ask("destroy", name, timeout_s=_CHANGE_TIMEOUT_S)

    def connect(self, name: str) -> SlotRemote:
        """Open a shell in a slot, on a new connection. Raises GoneError, UnreachableError."""
        machine = self._connect()
        remote = with_abilities(SlotRemote, machine)(machine, name)
        try:
            remote.check()
        except ProviderError:
            remote.close()
            raise
        return remote

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def _ask(self, *words: str, timeout_s: float) -> SlotList:
        command = f"bash onstart/module.sh holding {' '.join(map(shlex.quote, words))}"
        with self._lock:
            done = self._call(lambda remote: remote.run(command, timeout_s=timeout_s))
        if done.exit_code != 0:
            error_text = done.stderr.strip()[-300:]
            why = repr(error_text) if error_text else f"exit code {done.exit_code}"
            raise ProviderError(f"{self.held.run.id} cannot {words[0]} slots: {why}")
        return parse_slots(done.stdout, self.held.hold.slots)

    def _call(self, verb: Callable[[Remote], _T]) -> _T:
        """Call the verb on the open connection; close the connection when the call fails."""
        if self._remote is None:
            self._remote = self._connect()
        try:
            return verb(self._remote)
        except ProviderError:
            self._disconnect()
            raise

    def _connect(self) -> Remote:
        instance = self._instance()
        if instance is None:
            raise GoneError(f"the machine of {self.held.run.id} is gone")
        return self._provider.connect(instance)

    def _instance(self) -> Instance | None:
        """Return the machine from its provider's list."""
        assert self.held.run.instance_id is not None
        return self._provider.machine(self.held.run.instance_id)

    def _disconnect(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None


class SlotRemote:
    """The Remote port for a slot. A slot without a folder is gone."""

    def __init__(self, inner: Remote, name: str) -> None:
        """`inner`: shell on the held machine."""
        self._inner, self._name = inner, name
        self._folder = f"{layout.SLOTS}/{name}"

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        """Run a command to its end, with the slot's environment and on its cores."""
        words = f"exec bash {layout.SLOT_SCRIPT} {shlex.quote(self._name)} {shlex.quote(command)}"
        done = self._inner.run(words, timeout_s=timeout_s)
        if done.exit_code == NO_SLOT:
            raise GoneError(f"there is no slot {self._name}")
        return done

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return a shell with the slot's environment and on its cores. Raises UsageError, GoneError."""
        self.check()
        if not isinstance(self._inner, OpensTerminal):
            raise UsageError("the machine of this slot allows no login")
        words = (
            f"exec bash {layout.SLOT_SCRIPT} {shlex.quote(self._name)} {shlex.quote(command or LOGIN_SHELL)}"
        )
        return self._inner.terminal(words)

    def ssh_access(self) -> SshAccess:
        """Return the login of the held machine, with the slot's folder. Raises UsageError, GoneError."""
        self.check()
        if not isinstance(self._inner, AllowsSsh):
            raise UsageError("the held machine of this slot has no SSH server", hint="vastrun ssh RUN")
        access = self._inner.ssh_access()
        return replace(access, folder=f"{access.folder}/{self._folder}")

    def put(self, local_path: str, path: str) -> None:
        self.check()  # else the machine's shell would create missing folders
        self._inner.put(local_path, self._path(path))

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        self.check()  # as for `put`
        self._inner.write(self._path(path), content, mode=mode)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        try:
            content = self._inner.read(self._path(path), offset=offset, limit=limit)
        except BoxError as error:  # its text has the path relative to the machine's box
            raise BoxError(str(error).replace(self._path(path), path)) from error
        if not content:
            self.check()
        return content

    def has_grown(self, path: str) -> bool | None:
        inner = self._inner
        return inner.has_grown(self._path(path)) if isinstance(inner, SeesGrowth) else None

    def close(self) -> None:
        self._inner.close()

    def check(self) -> None:
        """Check that the slot exists. Raises GoneError, UnreachableError."""
        self.run("true", timeout_s=60.0)

    def _path(self, path: str) -> str:
        return f"{self._folder}/{path}"
