"""Peers: exchange the state of the supervisors of several nodes. Standard library only.

A star: every node is connected to the first one, which relays all messages. A node sends its whole state each
second and at every change, so that no message can be missed.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from vastrun.contract.outcome import Hang
from vastrun.contract.records import read_json
from vastrun.onstart.nodes import ThisNode
from vastrun.onstart.supervision.diagnosis import TimedRankEnd
from vastrun.onstart.supervision.progress import RankProgress
from vastrun.onstart.supervision.restarts import Start

SILENT_S = 30.0
"""Seconds without a message until a node is lost. Its supervisor may be busy for 20 s while it ends ranks."""
ENDING_S = 30.0
"""Maximum seconds for a node to end its ranks after those of another node failed."""
_SEND_S = 2.0
_POLL_INTERVAL_S = 0.1
_CHUNKS_PER_READ = 16
"""Maximum chunks that are read of one connection before the others have their turn."""
_MAX_LINE_BYTES = 16 << 20
"""Maximum bytes of a message; the ends of many ranks have tracebacks."""
_MAX_FIRST_LINE_BYTES = 1 << 20
"""Maximum bytes of the first message of a connection, which anybody may have opened."""
_MAX_UNKNOWN = 64
"""Maximum connections without a message; the oldest is closed for a new one."""
_CLOCK_SAMPLES = 16
"""Number of a node's last messages among which the fastest one determines the offset of its clock."""


_T = TypeVar("_T")


class PeersError(ConnectionError):
    """The nodes could not connect to each other."""


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """The state that the supervisor of a node sends to the other nodes."""

    run_id: str
    node: int
    start: int = 0
    """Number of the start of the ranks that the other fields describe; 0: the first."""
    stop_cause: str | None = None
    """Cause of a stop request to this node; None: there was none."""
    stopped_at: float | None = None
    """Epoch seconds at which it asked its ranks to stop."""
    stopped_at_step: int | None = None
    """Step that each of its ranks had reached by then."""
    failing: bool = False
    """True when one of its ranks has failed."""
    stalled: bool = False
    """True when its ranks make no progress."""
    ends: tuple[TimedRankEnd, ...] | None = None
    """Ends of its ranks; None while one of them runs."""
    killed: tuple[int, ...] = ()
    """Ranks that its supervisor killed."""
    culprit: RankProgress | None = None
    """The stalled rank for which its other ranks wait."""
    hang: Hang | None = None
    """The evidence of that hang."""
    lost: tuple[int, ...] = ()
    """Nodes that it can no longer reach."""
    has_concluded: bool = False
    """True when it has diagnosed the end of this start, and waits for the decision."""
    gpus: int | None = None
    """Number of its GPUs that respond then; None: unknown, or it has none."""
    restart: Start | None = None
    """The last restart that the first node decided for every node."""
    is_over: bool = False
    """True when it will not start ranks again."""
    why_over: str = ""
    """Reason of the first node's decision against a restart."""
    sent_at: float = 0.0
    """Epoch seconds of this message, by the clock of its sender."""
    clocks: tuple[float, ...] = ()
    """Seconds by which the clock of each node is ahead of the first node's, as measured there."""


@dataclass(kw_only=True)
class _Connection:
    """A connection to another supervisor; each message is a line of JSON."""

    socket: socket.socket
    received_at: float = field(default_factory=time.monotonic)
    node: int | None = None
    """Number of the connected node; None before its first message."""
    _partial: bytes = b""

    def states(self) -> Iterator[NodeState]:
        """Yield the states that arrived.

        Raises OSError when the other side is gone, ValueError when it is no supervisor of this run.
        """
        for _ in range(_CHUNKS_PER_READ):
            if not select.select([self.socket], [], [], 0)[0]:
                return
            if not (new := self.socket.recv(1 << 16)):
                raise ConnectionResetError("the other side has left")
            self.received_at = time.monotonic()
            *whole, self._partial = (self._partial + new).split(b"\n")
            for message in whole:
                yield read_json(NodeState, message)
            if len(self._partial) > (_MAX_FIRST_LINE_BYTES if self.node is None else _MAX_LINE_BYTES):
                raise ValueError("a message without an end")


@dataclass(kw_only=True)
class Peers(AbstractContextManager["Peers"]):
    """The connections of this node to the others. With one node it does nothing."""

    this_node: ThisNode
    run_id: str
    silent_s: float = SILENT_S
    peer_states: dict[int, NodeState] = field(default_factory=dict)
    """Last state of each other node."""
    lost: set[int] = field(default_factory=set)
    """Nodes that can no longer be reached although their ranks had not ended."""
    clock: Callable[[], float] = time.time
    """Clock of the ranks and supervisor of this node; epoch seconds."""
    _connections: list[_Connection] = field(default_factory=list)
    _listener: socket.socket | None = None
    _port_error: str = ""
    """Reason why this node cannot listen for the others yet."""
    _sent_at: float = 0.0
    _ahead: Mapping[int, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque[float](maxlen=_CLOCK_SAMPLES))
    )

    def __post_init__(self) -> None:
        self.state = NodeState(run_id=self.run_id, node=self.this_node.node)

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.socket.close()
        if self._listener is not None:
            self._listener.close()

    @property
    def _other_nodes(self) -> list[int]:
        return [node for node in range(self.this_node.nodes) if node != self.this_node.node]

    @property
    def complete(self) -> bool:
        """Tell whether every node has sent its state."""
        return all(node in self.peer_states for node in self._other_nodes)

    @property
    def ended(self) -> bool:
        """Tell whether the ranks of every other node that came have ended, or the node is lost."""
        return all(node in self.lost or self._has_ended(node) for node in self.peer_states)

    @property
    def in_this_start(self) -> list[NodeState]:
        """Return the states of the other nodes that are about the current start."""
        return [state for state in self.peer_states.values() if state.start == self.state.start]

    @property
    def failing(self) -> bool:
        """Tell whether another node has failed, is lost or is over: the ranks here cannot continue."""
        before = (state for state in self.peer_states.values() if state.start < self.state.start)
        left_out = any(state.is_over for state in before)
        return bool(self.lost) or left_out or any(state.failing for state in self.in_this_start)

    @property
    def stalled(self) -> bool:
        """Tell whether the ranks of another node make no progress."""
        return any(state.stalled for state in self.in_this_start)

    @property
    def disconnected(self) -> Set[int]:
        """Return the nodes without a connection, although their ranks may have ended."""
        heard = {connection.node for connection in self._connections}
        direct = self._other_nodes if self.this_node.is_host else self._other_nodes[:1]
        return self.lost | {node for node in direct if node not in heard}

    @property
    def stop_cause(self) -> str | None:
        """Return the cause of a stop request to another node; None: there was none."""
        return next(filter(None, (state.stop_cause for state in self.peer_states.values())), None)

    def connect_all(self, *, within_s: float, is_cancelled: Callable[[], bool]) -> None:
        """Wait until every node is connected, or `is_cancelled` returns True. Raises PeersError."""
        deadline = time.monotonic() + within_s
        self.listen()
        while not self.complete and not is_cancelled():
            if self.lost or time.monotonic() > deadline:
                if self._port_error:
                    raise PeersError(f"other nodes cannot connect: {self._port_error}")
                missing = [str(n) for n in self._other_nodes if n in self.lost or n not in self.peer_states]
                raise PeersError(f"node {', '.join(missing)} did not come within {within_s:g} s")
            time.sleep(_POLL_INTERVAL_S)
            self.listen()

    def publish(self, **changes: Any) -> None:
        """Change the state of this node and send it to the others."""
        state = replace(self.state, **changes)
        if state != self.state:
            self.state = state
            self._send_state()

    def begin(self, start: int) -> None:
        """Send the others the number of a new start of the ranks here."""
        over = {state.node for state in self.peer_states.values() if state.is_over}
        self.lost |= self.disconnected - over
        self.state = NodeState(
            run_id=self.run_id,
            node=self.state.node,
            start=start,
            stop_cause=self.state.stop_cause,
            restart=self.state.restart,
        )
        self._send_state()

    def to_own_clock(self, node: int, at: float) -> float:
        """Convert a time of that node's clock to this node's clock; both in epoch seconds.

        Clocks of machines differ by seconds, and ranks of two nodes fail within one second. The first node
        compares each clock with its own at every message, and sends the offsets to all: then all order the
        failures alike. The error is at most the latency of the fastest recent message.
        """
        clocks = self._clocks
        if not self.this_node.is_host:
            clocks = self.peer_states[0].clocks if 0 in self.peer_states else ()
        if max(node, self.this_node.node) >= len(clocks):  # nothing was heard
            return at
        return at - clocks[node] + clocks[self.this_node.node]

    @property
    def _clocks(self) -> tuple[float, ...]:
        return tuple(max(self._ahead.get(node, ()), default=0.0) for node in range(self.this_node.nodes))

    def listen(self) -> None:
        """Receive states and record lost nodes. Call it several times a second."""
        if self.this_node.nodes == 1:
            return
        if self.this_node.is_host:
            self._accept()
        elif not self._connections and not self.complete:
            with suppress(OSError):  # the first node does not listen yet
                address = (self.this_node.host, self.this_node.port + 1)
                self._add(socket.create_connection(address, timeout=_SEND_S))
        before = (dict(self.peer_states), set(self.lost))
        for connection in list(self._connections):
            try:
                for state in connection.states():
                    self._receive(connection, state)
                if time.monotonic() - connection.received_at > self.silent_s:
                    raise TimeoutError("the node is silent")
            except (OSError, ValueError):
                self._drop(connection)
        if (self.peer_states, self.lost) != before or time.monotonic() - self._sent_at >= 1.0:
            self._send_state()

    def listen_while(self, action: Callable[[], _T]) -> _T:
        """Return the result of an action that may take as long as `SILENT_S`, and listen meanwhile."""
        if self.this_node.nodes == 1:
            return action()
        with ThreadPoolExecutor(1) as thread:
            done = thread.submit(action)
            while not done.done():
                self.listen()
                wait([done], timeout=_POLL_INTERVAL_S)
        return done.result()

    def wait_until_ended(self) -> None:
        """Wait until every other node's ranks have ended; at most `ENDING_S` once a rank has failed."""
        deadline = float("inf")
        while not self.ended and time.monotonic() < deadline:
            self.listen()
            if self.failing or self.stalled or self.state.failing or self.state.stop_cause:
                deadline = min(deadline, time.monotonic() + ENDING_S)
            time.sleep(_POLL_INTERVAL_S)
        self._send_state()

    def _accept(self) -> None:
        if self._listener is None:
            family = socket.AF_INET6 if ":" in self.this_node.address else socket.AF_INET
            try:
                self._listener = socket.create_server(("", self.this_node.port + 1), family=family)
            except OSError as error:  # another program's connection may hold the port for a while
                self._port_error = f"port {self.this_node.port + 1}: {error.strerror}"
                return
            self._port_error = ""
        for _ in range(_MAX_UNKNOWN):
            if not select.select([self._listener], [], [], 0)[0]:
                return
            self._add(self._listener.accept()[0])
            unknown = [connection for connection in self._connections if connection.node is None]
            for oldest in unknown[:-_MAX_UNKNOWN]:
                self._drop(oldest)

    def _add(self, connection: socket.socket) -> None:
        connection.settimeout(_SEND_S)
        self._connections.append(_Connection(socket=connection))
        self._sent_at = 0.0

    def _receive(self, connection: _Connection, state: NodeState) -> None:
        if state.run_id != self.run_id or state.node not in self._other_nodes:
            raise ValueError(f"unexpected message of node {state.node} of {state.run_id}")
        if connection.node is None:
            if self.this_node.is_host:
                if any(other.node == state.node for other in self._connections):
                    raise ValueError(f"node {state.node} is connected already")
                if state.node in self.lost:
                    raise ValueError(f"node {state.node} was lost")
            connection.node = state.node
        if self.this_node.is_host:
            self._ahead[state.node].append(state.sent_at - self.clock())
        elif state.node == 0:  # only the first node is connected to all
            self.lost.update(node for node in state.lost if node != self.this_node.node)
        self.peer_states[state.node] = state

    def _drop(self, connection: _Connection) -> None:
        """Record the node as lost unless its ranks have ended; before all are connected it may return."""
        connection.socket.close()
        self._connections.remove(connection)
        if connection.node is None:
            return
        if not self.complete:
            self.peer_states.pop(connection.node, None)
        else:
            unreachable = [connection.node] if self.this_node.is_host else self._other_nodes
            self.lost.update(node for node in unreachable if not self._has_ended(node))

    def _send_state(self) -> None:
        self._sent_at = time.monotonic()
        states = [replace(self.state, lost=tuple(sorted(self.lost)), sent_at=self.clock())]
        if self.this_node.is_host:
            states = [replace(states[0], clocks=self._clocks), *self.peer_states.values()]
        # The node of a connection is unknown before its first message; the side that opened it sends first.
        for connection in [
            one for one in self._connections if one.node is not None or not self.this_node.is_host
        ]:
            others = (asdict(state) for state in states if state.node != connection.node)
            try:
                connection.socket.sendall(b"".join(json.dumps(state).encode() + b"\n" for state in others))
            except OSError:
                self._drop(connection)

    def _has_ended(self, node: int) -> bool:
        """Tell whether its ranks of this start have ended, or will never start."""
        state, start = self.peer_states.get(node), self.state.start
        if state is None or state.is_over:
            return state is not None
        return state.start > start or (state.start == start and state.ends is not None)
