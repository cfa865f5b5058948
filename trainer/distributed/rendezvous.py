"""Rendezvous: connect the launch agents of several nodes with c10d in a fixed order; one node at once."""

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

ORDERED_BACKEND = "c10d-in-order"
SINGLE_NODE_BACKEND = "one-node"


class OrderedRendezvousHandler(RendezvousHandler):
    """A rendezvous in which each node keeps its configured number.

    c10d sorts the nodes by their addresses, so that rank 0 could be on any node.
    """

    def __init__(self, handler: RendezvousHandler, node: int, address: str, port: int) -> None:
        """`port`: port of the ranks' store on node 0."""
        self._c10d, self._port = handler, port
        self._node = node
        self._address = address

    def next_rendezvous(self) -> RendezvousInfo:
        # The rank and the master of c10d's result are replaced, since they follow from its order.
        handler = self._c10d.next_rendezvous()
        # A port that is free now may be in use when the ranks start: this one is reserved for them.
        store = PrefixStore(ORDERED_BACKEND, handler.store)
        where = RendezvousStoreInfo.build(self._node, store, self._address, self._port)
        return RendezvousInfo(handler.store, self._node, handler.world_size, where)

    def num_nodes_waiting(self) -> int:
        """Return 0: no node joins later. Does not query the store, which ends with the first node's agent."""
        return 0

    def get_backend(self) -> str:
        return ORDERED_BACKEND

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


def create_ordered_handler(parameters: RendezvousParameters) -> RendezvousHandler:
    """Create the rendezvous of a LaunchConfig whose `rdzv_configs` has the number of this `node`."""
    store_backend, store = create_backend(parameters)
    handler = create_handler(store, store_backend, parameters)
    node = parameters.get_as_int("node")
    assert node is not None and parameters.local_addr is not None
    port = int(parameters.endpoint.rpartition(":")[2])
    return OrderedRendezvousHandler(handler, node, parameters.local_addr, port + RANKS_PORT)


class SingleNodeRendezvousHandler(RendezvousHandler):
    """The rendezvous of a single node, or of a node that trains independently, without waiting.

    c10d would start a server, a thread and a random pause of up to 0.3 s for other nodes.
    """

    def __init__(self, run_id: str, address: str, port: int | None) -> None:
        """`address`, `port`: of the ranks' store; None: a free port."""
        self._run_id = run_id
        self._address, self._port = address, port

    def next_rendezvous(self) -> RendezvousInfo:
        store = HashStore()
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo.build(0, store, self._address, self._port))

    def num_nodes_waiting(self) -> int:
        return 0

    def get_backend(self) -> str:
        return SINGLE_NODE_BACKEND

    @property
    def use_agent_store(self) -> bool:
        return False

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Do nothing: there is no other agent."""

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


def create_alone(parameters: RendezvousParameters) -> RendezvousHandler:
    """Create the rendezvous of a LaunchConfig with one node."""
    assert parameters.local_addr is not None
    if not parameters.get_as_bool("apart"):
        return SingleNodeRendezvousHandler(parameters.run_id, parameters.local_addr, None)
    host, _, port = parameters.endpoint.rpartition(":")
    return SingleNodeRendezvousHandler(parameters.run_id, host.strip("[]"), int(port) + RANKS_PORT)


rendezvous_handler_registry.register(ORDERED_BACKEND, create_ordered_handler)
rendezvous_handler_registry.register(SINGLE_NODE_BACKEND, create_alone)
