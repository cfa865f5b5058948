"""Replicas: synchronise nodes that train independently, with torchft, an optional package.

The nodes agree on their members at each synchronisation: a node that is behind first receives the state of
another. Node 0 runs torchft's lighthouse, through which they find each other.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor
from torch.distributed import DistNetworkError, ReduceOp, TCPStore

from vastrun.trainer.distributed.nodes import own_address
from vastrun.trainer.distributed.rank import Rank

State = dict[str, Any]
"""The complete state with which a node continues like another; tensors on the CPU."""

_POLL_INTERVAL_S = 0.1
_HEARTBEAT_TIMEOUT_S = 5.0
"""Seconds without a heartbeat after which a node is not waited for."""
_LIGHTHOUSE, _THERE = "lighthouse", "nodes"
_RECORDER = "TORCH_FR_DUMP_TEMP_FILE"


@dataclass(frozen=True, kw_only=True)
class SyncRound:
    """The result of one synchronisation."""

    total: Tensor
    """The sum of the vectors of all nodes, on the CPU."""
    was_behind: bool
    """True when this node received the state of another."""


class Replicas:
    """The connection of this node's first rank to the other nodes."""

    def __init__(
        self,
        rank: Rank,
        *,
        min_nodes: int,
        timeout_s: float,
        give: Callable[[], State],
        take: Callable[[State], None],
    ) -> None:
        """Connect to the other nodes and wait for all. `min_nodes`: minimum of a synchronisation.

        At the start of a synchronisation a node that is ahead calls `give` to send its state, and one that
        is behind calls `take` to continue from it. Raises DistNetworkError.
        """
        _silence_torchft()
        from torchft import Manager, ProcessGroupGloo
        from torchft.checkpointing.pg_transport import PGTransport

        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        address, limit = own_address(host, port), timedelta(seconds=timeout_s)
        with _network_errors():
            self._store = _store(host, port, is_host=rank.node == 0, limit=limit)
            if rank.node == 0:
                self._store.set(_LIGHTHOUSE, self._open(address, min_nodes, limit))
            lighthouse = self._store.get(_LIGHTHOUSE).decode()
            self._own = TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=limit)
            group = ProcessGroupGloo(timeout=limit)
            with _without_recorder():
                self._manager = Manager(
                    pg=group,
                    load_state_dict=None,
                    state_dict=None,
                    min_replica_size=min_nodes,
                    use_async_quorum=False,
                    timeout=limit,
                    quorum_timeout=limit,
                    connect_timeout=limit,
                    # To torchft a node is one rank, which informs the other ranks of the node.
                    rank=0,
                    world_size=1,
                    store_addr=address,
                    store_port=self._own.port,
                    lighthouse_addr=lighthouse,
                    replica_id=f"node-{rank.node}",
                    hostname=address,
                    # Over the nodes' network, without a server for requests.
                    checkpoint_transport=PGTransport(group, limit, torch.device("cpu")),
                    init_sync=False,  # all nodes initialise the same weights
                )
            self._manager.register_state_dict_fn("node", self._take, give)
            self._take_state = take
            self._was_behind = False
            # A thread waits for a synchronisation, so that a stop does not have to.
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="meeting")
            _send_first_heartbeat(lighthouse, self._own, limit)
            self._await_all(rank.nodes, limit)

    def meet(
        self, meetings: int, share: Callable[[bool], Tensor], asked: Callable[[], bool]
    ) -> SyncRound | None:
        """Return the sum of all nodes' vectors; None if `asked` returned True meanwhile, for a stop.

        `meetings`: number of earlier synchronisations of this node. `share(was_behind)` returns this node's
        vector on the CPU; it is called again after a lost message. Raises DistNetworkError.
        """
        meeting = self._thread.submit(self._meet, meetings, share)
        while not asked():
            with suppress(TimeoutError):
                return meeting.result(_POLL_INTERVAL_S)
        return None

    def _meet(self, meetings: int, share: Callable[[bool], Tensor]) -> SyncRound:
        self._manager.load_state_dict({"step": meetings, "batches_committed": 0})
        self._was_behind = False
        while True:
            with _network_errors():
                self._manager.start_quorum()
                total = share(self._was_behind)
                self._manager.allreduce(total, reduce_op=ReduceOp.SUM).wait()
                if self._manager.should_commit():
                    return SyncRound(total=total, was_behind=self._was_behind)

    def _take(self, state: State) -> None:
        self._take_state(state)
        self._was_behind = True

    def _open(self, address: str, min_nodes: int, limit: timedelta) -> str:
        """Start the lighthouse and return its URL."""
        from torchft.coordination import LighthouseServer

        self._lighthouse = LighthouseServer(
            bind=f"{address}:0",
            min_replicas=min_nodes,
            # A node that lives and is slow is waited for.
            join_timeout_ms=int(limit / timedelta(milliseconds=1)),
            heartbeat_timeout_ms=int(1000 * _HEARTBEAT_TIMEOUT_S),
        )
        port = self._lighthouse.address().rpartition(":")[2]
        return f"http://{address}:{port}"

    def _await_all(self, nodes: int, limit: timedelta) -> None:
        """Wait until all nodes of the job have connected."""
        if self._store.add(_THERE, 1) == nodes:
            self._store.set(f"{_THERE} there", "")
        self._store.wait([f"{_THERE} there"], limit)


def _send_first_heartbeat(lighthouse: str, own: TCPStore, limit: timedelta) -> None:
    """Send a first heartbeat to the lighthouse: from then on a synchronisation waits for this node."""
    from torchft.coordination import LighthouseClient
    from torchft.manager import REPLICA_ID_KEY

    client = LighthouseClient(lighthouse, connect_timeout=limit)
    client.heartbeat(own.get(REPLICA_ID_KEY).decode(), timeout=limit)


def _store(host: str, port: int, *, is_host: bool, limit: timedelta) -> TCPStore:
    return TCPStore(host, port, is_master=is_host, wait_for_workers=False, timeout=limit)


def _silence_torchft() -> None:
    """Let torchft log errors only: it logs eight lines for each synchronisation."""
    os.environ.setdefault("RUST_LOG", "error")
    logging.getLogger("torchft").setLevel(logging.ERROR)


@contextmanager
def _without_recorder() -> Iterator[None]:
    """Hide the flight recorder's path from torchft, which would redirect it."""
    path = os.environ.pop(_RECORDER, None)
    try:
        yield
    finally:
        if path is not None:
            os.environ[_RECORDER] = path


@contextmanager
def _network_errors() -> Iterator[None]:
    """Raise torchft's network errors as torch's DistNetworkError."""
    try:
        yield
    except torch_dist.DistError:
        raise
    except (OSError, RuntimeError) as error:  # TimeoutError is an OSError
        raise DistNetworkError(f"the nodes cannot synchronise: {error}") from error
