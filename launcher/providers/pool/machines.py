"""HeldMachine: a machine that we hold, asked for its slots. What it answers passes the gate."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from vastrun.contract import layout
from vastrun.launcher.core import Completed, Instance, LocalProgram, RentalOrder
from vastrun.launcher.core.errors import BoxError, GoneError, ProviderError, UnreachableError, UsageError
from vastrun.launcher.core.slots import SlotId, SlotList
from vastrun.launcher.decisions.pool import HeldMachineRow
from vastrun.launcher.gate.slots import parse_slots
from vastrun.launcher.ports import OpensTerminal, Provider, Remote
from vastrun.launcher.ssh.terminal import LOGIN_SHELL

_T = TypeVar("_T")

_LIST_S = 60.0
_CHANGE_S = 180.0
"""A slot is removed, and its GPUs' memory waited for."""
NO_SLOT = 113
"""Exit code of onstart/slot.sh where there is no such slot."""
_CHECK_S = 60.0


class HeldMachine:
    """One machine, through the provider that it is rented from. One verb at a time: several runs ask it."""

    def __init__(self, held: HeldMachineRow, provider: Provider) -> None:
        self.held = held
        self._provider = provider
        self._lock = threading.Lock()
        self._remote: Remote | None = None

    def slots(self) -> SlotList:
        """Ask what it says of its slots; nothing where the machine itself is no more.

        Raises UnreachableError, BoxError; ProviderError.
        """
        try:
            return self._ask("list", timeout_s=_LIST_S)
        except GoneError:
            if self._instance() is not None:
                raise UnreachableError(f"the box of {self.held.run.id} is being removed") from None
            return SlotList()

    def put_order(self, slot_id: SlotId, order: RentalOrder, units: int) -> None:
        """Give it the order; there is no slot for it yet. Raises GoneError, ProviderError."""
        place = f"{layout.SLOT_ORDERS}/{slot_id.name}.json"
        content = _order_bytes(slot_id, order, units)
        with self._lock:
            self._verb(lambda remote: remote.write(place, content))

    def rent(self, name: str) -> SlotList:
        """Ask for a slot, once, and return what it then says. With any error the slot may exist.

        Raises GoneError, ProviderError.
        """
        return self._ask("rent", name, timeout_s=_CHANGE_S)

    def destroy(self, name: str) -> SlotList:
        """Remove the slot, and return what it then says. Raises GoneError, ProviderError."""
        return self._ask("destroy", name, timeout_s=_CHANGE_S)

    def connect(self, name: str) -> SlotRemote:
        """Open a shell in a slot, over a connection of its own. Raises GoneError, UnreachableError."""
        remote = SlotRemote(self._connected(), name)
        try:
            remote.check()
        except ProviderError:
            remote.close()
            raise
        return remote

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._hang_up()

    def _ask(self, *words: str, timeout_s: float) -> SlotList:
        command = f"bash onstart/trainer.sh holding {' '.join(map(shlex.quote, words))}"
        with self._lock:
            done = self._verb(lambda remote: remote.run(command, timeout_s=timeout_s))
        if done.exit_code != 0:
            said = done.stderr.strip()[-300:]
            why = repr(said) if said else f"exit code {done.exit_code}"
            raise ProviderError(f"{self.held.run.id} cannot {words[0]} slots: {why}")
        return parse_slots(done.stdout, self.held.hold.slots)

    def _verb(self, verb: Callable[[Remote], _T]) -> _T:
        """The verb over the connection that there is; one that failed is not used again."""
        if self._remote is None:
            self._remote = self._connected()
        try:
            return verb(self._remote)
        except ProviderError:
            self._hang_up()
            raise

    def _connected(self) -> Remote:
        instance = self._instance()
        if instance is None:
            raise GoneError(f"the machine of {self.held.run.id} is no more")
        return self._provider.connect(instance)

    def _instance(self) -> Instance | None:
        """The machine as its provider lists it, by its id."""
        assert self.held.run.instance_id is not None
        return self._provider.machine(self.held.run.instance_id)

    def _hang_up(self) -> None:
        if self._remote is not None:
            self._remote.close()
            self._remote = None


def _order_bytes(slot_id: SlotId, order: RentalOrder, units: int) -> bytes:
    """The order as the machine reads it: `SlotOrder` in trainer/holding/slots.py."""
    return json.dumps(
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
