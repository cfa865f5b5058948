"""HeldMachine: a machine that we hold, asked for its slots. What it answers passes the gate."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable
from typing import TypeVar

from launcher.core import Instance, RentalOrder
from launcher.core.errors import GoneError, ProviderError, UnreachableError
from launcher.core.slots import SlotId, SlotList
from launcher.decisions.pooling import HeldMachineRow
from launcher.gate.slots import slot_list_of
from launcher.ports import Provider, Remote
from launcher.providers.pool.remote import SlotRemote
from trainer.contract import layout

_T = TypeVar("_T")

_LIST_S = 60.0
_CHANGE_S = 180.0
"""A slot is removed, and its GPUs' memory waited for."""


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
        return slot_list_of(done.stdout, self.held.hold.slots)

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
