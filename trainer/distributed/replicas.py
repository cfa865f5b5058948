"""Replicas: nodes that train apart and meet now and then, by torchft, which is an extra.

Who is there is agreed on at each meeting: one that is behind, or new, is sent the state of another first.
Node 0 runs torchft's lighthouse, where they find each other.
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
"""All that a node needs to go on like another; tensors on the CPU."""

_LOOK_EVERY_S = 0.1
_ALIVE_S = 5.0
"""A node that gave no sign of life for so long is not waited for."""
_LIGHTHOUSE, _THERE = "lighthouse", "nodes"
_RECORDER = "TORCH_FR_DUMP_TEMP_FILE"


@dataclass(frozen=True, kw_only=True)
class SyncRound:
    """What came of one."""

    total: Tensor
    """The sum of what all nodes gave, on the CPU."""
    was_behind: bool
    """This node has taken the state of another."""


class Replicas:
    """The nodes, as the first rank of this one meets them."""

    def __init__(
        self,
        rank: Rank,
        *,
        least: int,
        limit_s: float,
        give: Callable[[], State],
        take: Callable[[State], None],
    ) -> None:
        """Find the other nodes; return when all are there. `least`: how many a meeting needs.

        `give` and `take` are called while a meeting begins: the state of a node that is further, and the node
        that goes on from there. Raises DistNetworkError.
        """
        _keep_quiet()
        from torchft import Manager, ProcessGroupGloo
        from torchft.checkpointing.pg_transport import PGTransport

        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        address, limit = own_address(host, port), timedelta(seconds=limit_s)
        with _as_network_error():
            self._store = _store(host, port, is_host=rank.node == 0, limit=limit)
            if rank.node == 0:
                self._store.set(_LIGHTHOUSE, self._open(address, least, limit))
            lighthouse = self._store.get(_LIGHTHOUSE).decode()
            self._own = TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=limit)
            group = ProcessGroupGloo(timeout=limit)
            with _without_recorder():
                self._manager = Manager(
                    pg=group,
                    load_state_dict=None,
                    state_dict=None,
                    min_replica_size=least,
                    use_async_quorum=False,
                    timeout=limit,
                    quorum_timeout=limit,
                    connect_timeout=limit,
                    # To torchft a node is one rank: the others on it are told by the first.
                    rank=0,
                    world_size=1,
                    store_addr=address,
                    store_port=self._own.port,
                    lighthouse_addr=lighthouse,
                    replica_id=f"node-{rank.node}",
                    hostname=address,
                    # Over the nodes' own network, and no server for others to ask.
                    checkpoint_transport=PGTransport(group, limit, torch.device("cpu")),
                    init_sync=False,  # all draw the same weights
                )
            self._manager.register_state_dict_fn("node", self._take, give)
            self._take_state = take
            self._was_behind = False
            # A meeting is waited for there, so that a stop need not wait for it.
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="meeting")
            _tell_alive(lighthouse, self._own, limit)
            self.train_already = self._await_all(rank.nodes, limit)
            """This node comes while the others train."""

    def meet(
        self, meetings: int, share: Callable[[bool], Tensor], asked: Callable[[], bool]
    ) -> SyncRound | None:
        """Return what all nodes gave; None: this node was `asked` to stop meanwhile.

        `meetings`: how often it has met before. `share` makes what this node gives, a vector on the CPU, and
        is told whether it was behind; it is asked again where a message was lost. Raises DistNetworkError.
        """
        meeting = self._thread.submit(self._meet, meetings, share)
        while not asked():
            with suppress(TimeoutError):
                return meeting.result(_LOOK_EVERY_S)
        return None

    def _meet(self, meetings: int, share: Callable[[bool], Tensor]) -> SyncRound:
        self._manager.load_state_dict({"step": meetings, "batches_committed": 0})
        self._was_behind = False
        while True:
            with _as_network_error():
                self._manager.start_quorum()
                total = share(self._was_behind)
                self._manager.allreduce(total, reduce_op=ReduceOp.SUM).wait()
                if self._manager.should_commit():
                    return SyncRound(total=total, was_behind=self._was_behind)

    def _take(self, state: State) -> None:
        self._take_state(state)
        self._was_behind = True

    def _open(self, address: str, least: int, limit: timedelta) -> str:
        """Open the lighthouse, and return where the nodes find it."""
        from torchft.coordination import LighthouseServer

        self._lighthouse = LighthouseServer(
            bind=f"{address}:0",
            min_replicas=least,
            # One that lives and is slow is waited for.
            join_timeout_ms=int(limit / timedelta(milliseconds=1)),
            heartbeat_timeout_ms=int(1000 * _ALIVE_S),
        )
        port = self._lighthouse.address().rpartition(":")[2]
        return f"http://{address}:{port}"

    def _await_all(self, nodes: int, limit: timedelta) -> bool:
        """Wait until as many nodes have come as the job has; a later one finds them counted: then True."""
        come = self._store.add(_THERE, 1)
        if come == nodes:
            self._store.set(f"{_THERE} there", "")
        self._store.wait([f"{_THERE} there"], limit)
        return come > nodes


def _tell_alive(lighthouse: str, own: TCPStore, limit: timedelta) -> None:
    """Return when the lighthouse has heard of this node: from then on a meeting waits for it."""
    from torchft.coordination import LighthouseClient
    from torchft.manager import REPLICA_ID_KEY

    client = LighthouseClient(lighthouse, connect_timeout=limit)
    client.heartbeat(own.get(REPLICA_ID_KEY).decode(), timeout=limit)


def _store(host: str, port: int, *, is_host: bool, limit: timedelta) -> TCPStore:
    return TCPStore(host, port, is_master=is_host, wait_for_workers=False, timeout=limit)


def _keep_quiet() -> None:
    """Let torchft tell errors only: it has eight lines for each meeting."""
    os.environ.setdefault("RUST_LOG", "error")
    logging.getLogger("torchft").setLevel(logging.ERROR)


@contextmanager
def _without_recorder() -> Iterator[None]:
    """Hide where the flight recorder writes: torchft would have it write elsewhere."""
    path = os.environ.pop(_RECORDER, None)
    try:
        yield
    finally:
        if path is not None:
            os.environ[_RECORDER] = path


@contextmanager
def _as_network_error() -> Iterator[None]:
    """Raise what torchft says of the network as the error of torch that means it."""
    try:
        yield
    except torch_dist.DistError:
        raise
    except (OSError, RuntimeError) as error:  # TimeoutError is an OSError
        raise DistNetworkError(f"the nodes cannot meet: {error}") from error
