"""Peers: the supervisors of several nodes tell each other their state. Standard library only.

A star: every node holds a connection to the first one, which passes on all that it hears. A node says all of
where it stands, each second and at every change, so that no message can be missed.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from vastrun.contract.records import read_json
from vastrun.trainer.distributed.nodes import ThisNode
from vastrun.trainer.supervision.node_state import NodeState

if TYPE_CHECKING:
    from typing import Self  # since Python 3.11

SILENT_S = 30.0
"""A node that says nothing for so long is lost. Its supervisor may be busy for 20 s, ending its ranks."""
ENDING_S = 30.0
"""How long a node may take to end its ranks when those of another have failed."""
_REPEAT_S = 1.0
_SEND_S = 2.0
_LOOK_EVERY_S = 0.1
_CHUNK = 1 << 16
_LAST_WORDS = 16
"""Of a node's last so many words, the one that came quickest tells how its clock differs."""


class PeersError(ConnectionError):
    """The nodes did not come together."""


class TooLateError(PeersError):
    """The others had ended before this node could join them."""


@dataclass(kw_only=True)
class _Line:
    """A connection that carries words, each a line of JSON."""

    socket: socket.socket
    heard_at: float = field(default_factory=time.monotonic)
    node: int | None = None
    """Whose words come here first; None: nothing came yet."""
    _partial: bytes = b""

    def states(self) -> Iterator[NodeState]:
        """Return what came since.

        Raises OSError when the other side is gone, ValueError when it is none of ours.
        """
        while select.select([self.socket], [], [], 0)[0]:
            if not (new := self.socket.recv(_CHUNK)):
                raise ConnectionResetError("the other side has left")
            self.heard_at = time.monotonic()
            *whole, self._partial = (self._partial + new).split(b"\n")
            for line in whole:
                yield cast(NodeState, read_json(NodeState, line))

    def send(self, states: list[NodeState]) -> None:
        self.socket.sendall(b"".join(json.dumps(asdict(state)).encode() + b"\n" for state in states))


@dataclass(kw_only=True)
class Peers:
    """This node's side. With one node there is nobody to talk to, and nothing is ever heard."""

    this_node: ThisNode
    run_id: str
    least: int | None = None
    """While so many nodes are there, those that left are not needed, but for node 0; None: all are."""
    silent_s: float = SILENT_S
    others: dict[int, NodeState] = field(default_factory=dict)
    """The last word of each other node."""
    lost: set[int] = field(default_factory=set)
    """Nodes that cannot be reached any more, though their ranks had not ended."""
    clock: Callable[[], float] = time.time
    """By which ranks and supervisors date what happens here; epoch seconds."""
    _lines: list[_Line] = field(default_factory=list)
    _door: socket.socket | None = None
    _port_error: str = ""
    """Why this node cannot listen for the others yet."""
    _said_at: float = 0.0
    _ahead: Mapping[int, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque[float](maxlen=_LAST_WORDS))
    )

    def __post_init__(self) -> None:
        self.state = NodeState(run_id=self.run_id, node=self.this_node.node, joins=self.this_node.joins)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for line in self._lines:
            line.socket.close()
        if self._door is not None:
            self._door.close()

    @property
    def _elsewhere(self) -> list[int]:
        return [node for node in range(self.this_node.nodes) if node != self.this_node.node]

    @property
    def complete(self) -> bool:
        """Every node was heard of."""
        return all(node in self.others for node in self._elsewhere)

    @property
    def ended(self) -> bool:
        """The ranks of every other node that ever began any have ended, or nobody can know."""
        return all(
            node in self.lost or state.joins or self._has_ended(node) for node, state in self.others.items()
        )

    @property
    def needed(self) -> Set[int]:
        """The other nodes without which the ranks of this one cannot go on."""
        enough = self._may_leave and self._there >= (self.least or 0)
        return {0} - {self.this_node.node} if enough else set(self._elsewhere)

    @property
    def _may_leave(self) -> bool:
        """Whether a node may leave, and come back on another machine."""
        return self.least is not None and self.least < self.this_node.nodes

    @property
    def can_do_without_this(self) -> bool:
        """Whether the others go on when the ranks of this node end."""
        first = self.others.get(0)
        return (
            self.least is not None
            and self.least < self._there
            and first is not None
            and first.ends is None
            and not self._has_left(0)
        )

    @property
    def in_this_start(self) -> list[NodeState]:
        """The last words of the other nodes, of those that speak of the same start as this one."""
        return [state for state in self.others.values() if state.start == self.state.start]

    @property
    def failing(self) -> bool:
        """A rank of another node has failed, or nobody knows: those of this one cannot go on."""
        needed = self.needed
        others = [state for state in self.others.values() if state.node in needed]
        left_out = any(state.is_over and state.start < self.state.start for state in others)
        is_behind = 0 in self.others and self.others[0].start > self.state.start
        failing = any(state.failing for state in self._needed_now)
        return bool(self.lost & needed) or left_out or is_behind or failing

    @property
    def stalled(self) -> bool:
        """The ranks of another node make no progress."""
        return any(state.stalled for state in self._needed_now)

    @property
    def _needed_now(self) -> list[NodeState]:
        needed = self.needed
        return [state for state in self.in_this_start if state.node in needed]

    @property
    def away(self) -> Set[int]:
        """The nodes from which nothing more can be heard, though their ranks may have ended."""
        heard = {line.node for line in self._lines}
        direct = self._elsewhere if self.this_node.is_host else self._elsewhere[:1]
        return self.lost | {node for node in direct if node not in heard}

    @property
    def stop_cause(self) -> str | None:
        """Why another node was asked to stop; None: none was."""
        needed = self.needed
        asked = (state.stop_cause for state in self.others.values() if state.node in needed)
        return next(filter(None, asked), None)

    def meet(self, *, within_s: float, given_up: Callable[[], bool]) -> None:
        """Wait until every node is here, or `given_up` says that it does not matter any more.

        One that joins the others waits until their ranks run, and is in their start then. Raises PeersError.
        """
        deadline = time.monotonic() + within_s
        while not (self.complete and self._is_met) and not given_up():
            self.listen()
            if self.this_node.joins and 0 in self.others and self.others[0].is_over:
                raise TooLateError("the training was over before this node joined it")
            if self.lost & self.needed or time.monotonic() > deadline:
                if self._port_error:
                    raise PeersError(f"other nodes cannot connect: {self._port_error}")
                missing = [str(n) for n in self._elsewhere if n in self.lost or n not in self.others]
                raise PeersError(f"node {', '.join(missing or '0')} did not come within {within_s:g} s")
            time.sleep(_LOOK_EVERY_S)
        if self.this_node.joins and 0 in self.others:
            self.tell(joins=False, start=self.others[0].start)

    @property
    def _is_met(self) -> bool:
        """Whether the ranks of this node can begin: at once, or beside those of the first node, which run."""
        return not self.this_node.joins or self._first_trains

    @property
    def _first_trains(self) -> bool:
        first = self.others.get(0)
        return first is not None and first.ends is None and not first.is_over and first.stop_cause is None

    @property
    def too_late(self) -> bool:
        """Whether this node came to join the others, and those of the first have ended in this start."""
        first = self.others.get(0)
        if first is None or not self.this_node.joins:
            return False
        return first.start == self.state.start and first.ends is not None

    def tell(self, **changes: Any) -> None:
        """Tell the others how this node stands now."""
        state = replace(self.state, **changes)
        if state != self.state:
            self.state = state
            self._say()

    def begin(self, start: int) -> None:
        """Tell the others that the ranks are started here once more."""
        self.lost |= {node for node in self.away if node not in self.others or not self.others[node].is_over}
        self.state = replace(self.state.at_start(start), lost=tuple(sorted(self.lost)))
        self._say()

    def by_own_clock(self, node: int, at: float) -> float:
        """Return the moment `at` of that node's clock by the clock of this one; both epoch seconds.

        Clocks of machines differ by seconds, and ranks of two nodes fail within one. The first node compares
        each clock with its own, at every word that it hears, and tells all how they differ: then all put
        failures in the same order. It errs by as long as the quickest of the last words took.
        """
        clocks = self._clocks if self.this_node.is_host else self._first_clocks
        if max(node, self.this_node.node) >= len(clocks):  # nothing was heard
            return at
        return at - clocks[node] + clocks[self.this_node.node]

    @property
    def _clocks(self) -> tuple[float, ...]:
        return tuple(max(self._ahead.get(node, ()), default=0.0) for node in range(self.this_node.nodes))

    @property
    def _first_clocks(self) -> tuple[float, ...]:
        return self.others[0].clocks if 0 in self.others else ()

    def listen(self) -> None:
        """Note what the others said, and who was lost. To be called several times a second."""
        if self.this_node.nodes == 1:
            return
        self._connect()
        before = (dict(self.others), set(self.lost))
        for line in list(self._lines):
            self._hear(line)
        self.state = replace(self.state, lost=tuple(sorted(self.lost)))
        if (self.others, self.lost) != before or time.monotonic() - self._said_at >= _REPEAT_S:
            self._say()

    def wait_until_ended(self) -> None:
        """Wait until every other node's ranks have ended. Not for long once some rank has failed."""
        deadline = float("inf")
        while not self.ended and time.monotonic() < deadline:
            self.listen()
            if self.failing or self.stalled or self.state.failing or self.state.stop_cause:
                deadline = min(deadline, time.monotonic() + ENDING_S)
            time.sleep(_LOOK_EVERY_S)
        self._say()

    def _connect(self) -> None:
        if self.this_node.is_host:
            self._open_door()
        elif not self._lines and not self.complete:
            with suppress(OSError):  # the first node is not there yet
                address = (self.this_node.host, self.this_node.port + 1)
                self._add(socket.create_connection(address, timeout=_SEND_S))

    def _open_door(self) -> None:
        if self._door is None:
            family = socket.AF_INET6 if ":" in self.this_node.address else socket.AF_INET
            try:
                self._door = socket.create_server(("", self.this_node.port + 1), family=family)
            except OSError as error:  # another program's connection may hold the port for a while
                self._port_error = f"port {self.this_node.port + 1}: {error.strerror}"
                return
            self._port_error = ""
        while select.select([self._door], [], [], 0)[0]:
            self._add(self._door.accept()[0])

    def _add(self, connection: socket.socket) -> None:
        connection.settimeout(_SEND_S)
        self._lines.append(_Line(socket=connection))
        self._said_at = 0.0

    def _hear(self, line: _Line) -> None:
        try:
            for state in line.states():
                self._take(line, state)
            if time.monotonic() - line.heard_at > self.silent_s:
                raise TimeoutError("it says nothing")
        except (OSError, ValueError):
            self._drop(line)

    def _take(self, line: _Line, state: NodeState) -> None:
        if state.run_id != self.run_id or state.node not in self._elsewhere:
            raise ValueError(f"a word of node {state.node} of {state.run_id}")
        if line.node is None:
            self._welcome(line, state)
        if self.this_node.is_host:
            self._ahead[state.node].append(state.said_at - self.clock())
        elif state.node == 0:  # only the first node has a line to each: one that it lost may be back
            self.lost = {node for node in state.lost if node != self.this_node.node}
        self.others[state.node] = state

    def _welcome(self, line: _Line, state: NodeState) -> None:
        """Note whose line this is. Raises ValueError where that node is here, or may not come back."""
        node = state.node
        if self.this_node.is_host:
            if any(other.node == node for other in self._lines):
                raise ValueError(f"node {node} is here already")
            if state.joins:
                if not self._may_leave:
                    raise ValueError(f"node {node} cannot join a training that needs all nodes")
                self.lost.discard(node)
                self._ahead[node].clear()  # another machine has another clock
            elif node in self.lost:
                raise ValueError(f"node {node} was lost")
        line.node = node

    def _drop(self, line: _Line) -> None:
        """Note who is lost, unless its ranks have ended; before all are here it may return."""
        line.socket.close()
        self._lines.remove(line)
        if line.node is None:
            return
        if not self.complete:
            self.others.pop(line.node, None)
        else:
            behind = [line.node] if self.this_node.is_host else self._elsewhere
            self.lost.update(node for node in behind if not self._has_ended(node))

    def _say(self) -> None:
        self._said_at = time.monotonic()
        states = [replace(self.state, said_at=self.clock())]
        if self.this_node.is_host:
            states = [replace(states[0], clocks=self._clocks), *self.others.values()]
        # To whom a line leads is not known before its first word; who opened it speaks first.
        for line in [one for one in self._lines if one.node is not None or not self.this_node.is_host]:
            try:
                line.send([state for state in states if state.node != line.node])
            except OSError:
                self._drop(line)

    @property
    def _there(self) -> int:
        """How many nodes have not left, this one among them."""
        return self.this_node.nodes - sum(map(self._has_left, self._elsewhere))

    def _has_left(self, node: int) -> bool:
        """Tell whether it is not there any more, though its ranks have not finished."""
        state = self.others.get(node)
        if node in self.lost or state is None:
            return node in self.lost
        return state.failing or state.stalled or state.stop_cause is not None

    def _has_ended(self, node: int) -> bool:
        """Tell whether its ranks of this start have ended, or will never begin."""
        state, start = self.others.get(node), self.state.start
        if state is None or state.start < start:
            return state is not None and state.is_over
        return state.start > start or state.ends is not None or state.is_over
