"""Rendezvous: how the launch agents of several nodes meet; c10d's, but with the nodes in our order."""

from __future__ import annotations

from torch.distributed import PrefixStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

IN_ORDER = "c10d-in-order"


class InOrder(RendezvousHandler):
    """A rendezvous in which each node has the number that it was given.

    c10d sorts the nodes by their addresses, so that rank 0 could be on any of them.
    """

    def __init__(self, met: RendezvousHandler, node: int, address: str) -> None:
        self._c10d = met
        self._node = node
        self._address = address

    def next_rendezvous(self) -> RendezvousInfo:
        # The rank and the master of c10d's answer are dropped, since they follow from its own order.
        met = self._c10d.next_rendezvous()
        where = RendezvousStoreInfo.build(self._node, PrefixStore(IN_ORDER, met.store), self._address)
        return RendezvousInfo(met.store, self._node, met.world_size, where)

    def num_nodes_waiting(self) -> int:
        """Return 0: no node joins later. The store is not asked: it ends with the first node's agent."""
        return 0

    def get_backend(self) -> str:
        return IN_ORDER

    @property
    def use_agent_store(self) -> bool:
        return self._c10d.use_agent_store

    def is_closed(self) -> bool:
        return self._c10d.is_closed()

    def set_closed(self) -> None:
        self._c10d.set_closed()

    def get_run_id(self) -> str:
        return self._c10d.get_run_id()

    def shutdown(self) -> bool:
        return self._c10d.shutdown()


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """Make the rendezvous of a LaunchConfig in which `rdzv_configs` has the number of this `node`."""
    store_backend, store = create_backend(parameters)
    met = create_handler(store, store_backend, parameters)
    node = parameters.get_as_int("node")
    assert node is not None and parameters.local_addr is not None
    return InOrder(met, node, parameters.local_addr)


rendezvous_handler_registry.register(IN_ORDER, create)
