"""How launch agents meet."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch


def test_a_node_alone_waits_for_nobody_and_each_meeting_is_a_new_one() -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    from vastrun.trainer.distributed.rendezvous import SINGLE_NODE_BACKEND, create_alone

    handler = create_alone(
        RendezvousParameters(SINGLE_NODE_BACKEND, "localhost:0", "run", 1, 1, local_addr="127.0.0.1")
    )
    first, second = handler.next_rendezvous(), handler.next_rendezvous()
    for met in (first, second):
        assert (met.rank, met.world_size, handler.num_nodes_waiting()) == (0, 1, 0)
        assert met.bootstrap_store_info.master_addr == "127.0.0.1"
        assert met.bootstrap_store_info.master_port > 0
    first.store.set("only", "here")
    assert not second.store.check(["only"])
    assert not handler.use_agent_store


@pytest.mark.parametrize(("host", "written"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]")])
def test_ranks_of_nodes_that_train_apart_are_told_where_the_nodes_meet(host: str, written: str) -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters

    from vastrun.trainer.distributed.rendezvous import SINGLE_NODE_BACKEND, create_alone

    apart = RendezvousParameters(
        SINGLE_NODE_BACKEND, f"{written}:29400", "run", 1, 1, local_addr="10.0.0.3", apart=True
    )
    met = create_alone(apart).next_rendezvous()
    where = met.bootstrap_store_info
    assert (where.master_addr, where.master_port) == (host, 29402)
    assert (met.rank, met.world_size) == (0, 1)
