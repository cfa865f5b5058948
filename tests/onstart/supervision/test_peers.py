"""The supervisors of several nodes, each heard by all others."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.ports import free_port
from tests.waiting import LONGEST_S, eventually
from vastrun.contract.outcome import RankEnd
from vastrun.onstart.nodes import ThisNode
from vastrun.onstart.supervision.diagnosis import TimedRankEnd
from vastrun.onstart.supervision.peers import Peers, PeersError

Join = Callable[..., Peers]


def end(rank: int, exit_code: int = 0) -> TimedRankEnd:
    return TimedRankEnd(end=RankEnd(rank=rank, exit_code=exit_code), at=1.0)


@pytest.fixture
def port() -> int:
    """Where node 0 is reached."""
    return free_port(2)


@pytest.fixture
def join(port: int) -> Iterator[Join]:
    """Makes a node's side of the link."""
    with ExitStack() as stack:

        def side(node: int, nodes: int = 3, *, run_id: str = "calm-heron", silent_s: float = 30.0) -> Peers:
            this_node = ThisNode(node=node, nodes=nodes, host="127.0.0.1", port=port)
            peers = Peers(this_node=this_node, run_id=run_id, silent_s=silent_s)
            return stack.enter_context(peers)

        yield side


def listening(sides: list[Peers], holds: Callable[[], bool]) -> None:
    """All of them listen until it holds."""

    def look() -> bool:
        for peers in sides:
            peers.listen()
        return holds()

    eventually(look)


def together(join: Join, nodes: int = 3) -> list[Peers]:
    sides = [join(node, nodes) for node in reversed(range(nodes))][::-1]  # the host comes last
    listening(sides, lambda: all(peers.complete for peers in sides))
    return sides


def test_what_one_node_says_all_others_hear(join: Join) -> None:
    sides = together(join)
    assert not any(peers.failing or peers.ended for peers in sides)
    sides[2].publish(stop_cause="time_limit")
    listening(sides, lambda: sides[0].stop_cause == sides[1].stop_cause == "time_limit")
    sides[1].publish(failing=True, ends=(end(1, -9),), killed=(1,))
    listening(sides, lambda: sides[0].failing and sides[2].failing)
    heard = sides[2].peer_states[1]
    assert (heard.ends, heard.killed) == ((end(1, -9),), (1,))
    assert not sides[1].failing


def test_a_node_that_leaves_before_its_ranks_ended_is_lost_to_all(join: Join) -> None:
    sides = together(join)
    sides[2].__exit__()
    listening(sides[:2], lambda: all(peers.lost == {2} and peers.failing for peers in sides[:2]))
    assert not sides[1].ended


def test_a_node_that_leaves_after_its_ranks_ended_is_not_lost(join: Join) -> None:
    sides = together(join)
    sides[2].publish(ends=(end(2),))
    listening(sides, lambda: all(2 in peers.peer_states and peers.peer_states[2].ends for peers in sides[:2]))
    sides[2].__exit__()
    for peers in sides[:2]:
        peers.publish(ends=(end(peers.this_node.node),))
    listening(sides[:2], lambda: all(peers.ended for peers in sides[:2]))
    assert not any(peers.lost or peers.failing for peers in sides)


@pytest.mark.parametrize(("is_over", "lost"), [(False, {2}), (True, set())])
def test_at_a_new_start_a_node_that_left_is_lost_unless_the_training_was_over_there(
    join: Join, is_over: bool, lost: set[int]
) -> None:
    sides = together(join)
    sides[2].publish(ends=(end(2),), is_over=is_over)
    listening(sides, lambda: all(2 in peers.peer_states and peers.peer_states[2].ends for peers in sides[:2]))
    sides[2].__exit__()
    listening(sides[:2], lambda: sides[0].disconnected == {2})
    sides[0].begin(1)
    assert sides[0].lost == lost


def test_with_the_first_node_all_others_are_lost(join: Join) -> None:
    sides = together(join)
    sides[0].__exit__()
    listening(sides[1:], lambda: all(peers.failing for peers in sides[1:]))
    assert (sides[1].lost, sides[2].lost) == ({0, 2}, {0, 1})


def test_the_first_node_waits_until_a_port_in_use_is_free(join: Join, port: int) -> None:
    with socket.create_server(("", port + 1)):
        host, other = join(0, 2), join(1, 2)
        host.listen()
    listening([host, other], lambda: host.complete and other.complete)


def test_a_port_that_stays_in_use_is_named(join: Join, port: int) -> None:
    host = join(0, 2)
    with (
        socket.create_server(("", port + 1)),
        pytest.raises(PeersError, match=f"cannot connect: port {port + 1}: Address already in use"),
    ):
        host.connect_all(within_s=0.3, is_cancelled=lambda: False)


def test_a_node_that_says_nothing_any_more_is_lost(join: Join) -> None:
    silent, host = join(1, 2), join(0, 2, silent_s=2.0)
    listening([host, silent], lambda: host.complete and silent.complete)
    began = time.monotonic()
    listening([host], lambda: host.lost == {1})
    assert time.monotonic() - began > 1.5


def test_a_node_of_another_run_does_not_join(join: Join) -> None:
    host, other = join(0, 2), join(1, 2, run_id="grey-crane")
    with pytest.raises(PeersError, match=r"node 1 did not come within 0\.6 s"):
        eventually(lambda: other.listen() or host.connect_all(within_s=0.6, is_cancelled=lambda: False))
    assert not other.complete


def test_an_endless_stranger_fills_no_memory_and_delays_nobody(join: Join, port: int) -> None:
    host, other = together(join, 2)
    with socket.create_connection(("127.0.0.1", port + 1)) as stranger:
        stranger.settimeout(LONGEST_S)
        closed = threading.Event()
        sender = threading.Thread(target=_send_until_closed, args=(stranger, closed), daemon=True)
        sender.start()
        listening([host, other], closed.is_set)
        sender.join()
    other.publish(stop_cause="time_limit")
    listening([host, other], lambda: host.stop_cause == "time_limit")
    assert not host.lost


def _send_until_closed(stranger: socket.socket, closed: threading.Event) -> None:
    with suppress(ConnectionError):
        while True:
            stranger.sendall(bytes(1 << 20))
    closed.set()


def test_strangers_who_say_nothing_do_not_keep_a_node_out(join: Join, port: int) -> None:
    host = join(0, 2)
    host.listen()
    with ExitStack() as strangers:
        for _ in range(200):
            strangers.enter_context(socket.create_connection(("127.0.0.1", port + 1)))
            host.listen()
        other = join(1, 2)
        listening([host, other], lambda: host.complete and other.complete)


def test_a_node_is_heard_while_it_does_something_that_takes_longer_than_a_silence(join: Join) -> None:
    host, other = join(0, 2, silent_s=1.0), join(1, 2)
    listening([host, other], lambda: host.complete and other.complete)
    came_after = threading.Event()

    def hear() -> None:
        until = time.monotonic() + 3.0  # of silence
        while time.monotonic() < until and not host.lost:
            host.listen()
        came_after.set()

    hearing = threading.Thread(target=hear, daemon=True)
    hearing.start()
    assert other.listen_while(lambda: came_after.wait(LONGEST_S)) is True
    hearing.join()
    assert not host.lost and not other.lost


def test_an_error_of_what_a_node_does_meanwhile_is_raised(join: Join) -> None:
    def fails() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        join(0, 2).listen_while(fails)


def test_nobody_waits_for_a_node_that_never_came(join: Join) -> None:
    host = join(0, 2)
    host.connect_all(within_s=60.0, is_cancelled=lambda: True)
    host.publish(stop_cause="stopped")
    host.wait_until_ended()
    assert host.ended and not host.complete


def test_one_node_has_nobody_to_wait_for() -> None:
    with Peers(this_node=ThisNode(), run_id="calm-heron") as peers:
        peers.connect_all(within_s=0.0, is_cancelled=lambda: False)
        peers.publish(failing=True)
        peers.wait_until_ended()
        assert peers.complete and peers.ended and not peers.failing


def test_a_node_that_was_lost_does_not_come_back(join: Join) -> None:
    sides = together(join)
    sides[2].__exit__()
    listening(sides[:2], lambda: sides[0].lost == sides[1].lost == {2})
    again = join(2)
    began = time.monotonic()
    listening([*sides[:2], again], lambda: time.monotonic() - began > 0.5)
    assert sides[0].lost == {2}
