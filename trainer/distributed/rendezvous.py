"""Rendezvous: how launch agents meet: several nodes as with c10d, but in our order; one alone at once."""

from __future__ import annotations

from torch.distributed import HashStore, PrefixStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

from vastrun.trainer.distributed.nodes import RANKS_PORT

IN_ORDER = "c10d-in-order"
ALONE = "one-node"


class InOrder(RendezvousHandler):
    """A rendezvous in which each node has the number that it was given.

    c10d sorts the nodes by their addresses, so that rank 0 could be on any of them.
    """

    def __init__(self, met: RendezvousHandler, node: int, address: str, port: int) -> None:
        """`port`: of the ranks' own store, on node 0."""
        self._c10d, self._port = met, port
        self._node = node
        self._address = address

    def next_rendezvous(self) -> RendezvousInfo:
        # The rank and the master of c10d's answer are dropped, since they follow from its own order.
        met = self._c10d.next_rendezvous()
        # A port that is free now may be somebody else's when the ranks are there: this one was kept for them.
        store = PrefixStore(IN_ORDER, met.store)
        where = RendezvousStoreInfo.build(self._node, store, self._address, self._port)
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
    port = int(parameters.endpoint.rpartition(":")[2])
    return InOrder(met, node, parameters.local_addr, port + RANKS_PORT)


class Alone(RendezvousHandler):
    """The rendezvous of a single node, which waits for nobody, or of one whose ranks train by themselves.

    c10d's opens a server, a thread and a random pause of up to 0.3 s for nodes that do not come.
    """

    def __init__(self, run_id: str, address: str, port: int | None) -> None:
        """`address`, `port`: where the ranks meet; None: a port that is free here."""
        self._run_id = run_id
        self._address, self._port = address, port

    def next_rendezvous(self) -> RendezvousInfo:
        store = HashStore()
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo.build(0, store, self._address, self._port))

    def num_nodes_waiting(self) -> int:
        return 0

    def get_backend(self) -> str:
        return ALONE

    @property
    def use_agent_store(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Do nothing: nobody else would hear of it."""

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


def create_alone(parameters: RendezvousParameters) -> RendezvousHandler:
    """Make the rendezvous of a LaunchConfig with one node."""
    assert parameters.local_addr is not None
    if not parameters.get_as_bool("apart"):
        return Alone(parameters.run_id, parameters.local_addr, None)
    host, _, port = parameters.endpoint.rpartition(":")
    return Alone(parameters.run_id, host.strip("[]"), int(port) + RANKS_PORT)


rendezvous_handler_registry.register(IN_ORDER, create)
rendezvous_handler_registry.register(ALONE, create_alone)
