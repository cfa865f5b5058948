"""Meetings: the nodes of `diloco` meet before their first step, and then every `diloco.every` steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.distributed as torch_dist
from torch import Tensor

from vastrun.trainer.distributed.replicas import Replicas, State, SyncRound
from vastrun.trainer.engine.outer import OuterOptimizer
from vastrun.trainer.engine.session import Session


def _named(nodes: Sequence[int]) -> str:
    return f"node {', '.join(map(str, nodes))}"


class DilocoSync:
    """Those of one training. All ranks call each method at the same place."""

    def __init__(self, session: Session, outer: OuterOptimizer) -> None:
        """Wait for all nodes. Raises DistNetworkError."""
        self._session, self._outer, self._step = session, outer, session.start
        rank = session.ranks.rank
        self._was_behind = False
        """At the last meeting this node took the state of another."""
        self._replicas = None
        if rank.is_first:
            self._replicas = Replicas(
                rank,
                least=session.config.diloco.least_nodes or rank.nodes,
                limit_s=session.job.longest_stage_s,
                give=self._give,
                take=self._take,
            )

    def begin(self) -> Session:
        """Return the session as it begins: a node that is behind goes on like one that is further."""
        if not self._outer.meetings:
            # A training that begins, or the checkpoint of another strategy, which is further than nothing.
            self._outer.begin(min(self._step, 1))
        if self._replicas is not None and self._replicas.train_already:
            print("this node waits for the nodes that train, and goes on like them", flush=True)
        self._meet(trained=False)
        if self._outer.is_due:
            self._meet(trained=not self._was_behind)
        return replace(self._session, start=self._step)

    def after(self, step: int, asked: Callable[[], bool]) -> bool:
        """Meet when this step is one after which the nodes do.

        True: this node was `asked` to stop meanwhile; others may have stopped on their way here. They meet
        when they begin again. Not after the last step: no other beginning follows.
        """
        config = self._session.config
        self._step = step
        if step % config.diloco.every:
            return False
        self._outer.is_due = True
        return not self._meet(trained=True, asked=asked if step < config.steps else lambda: False)

    def _meet(self, *, trained: bool, asked: Callable[[], bool] = lambda: False) -> bool:
        """Meet, tell the other ranks of this node, and follow. False: asked to stop before."""
        ranks, outer = self._session.ranks, self._outer
        meeting: SyncRound | None = None
        if self._replicas is not None:
            meeting = self._replicas.meet(
                outer.meetings,
                lambda behind: outer.pseudo_gradient() if trained and not behind else outer.no_gradient(),
                asked,
            )
        has_met, self._was_behind, self._step = ranks.broadcast_object(
            (meeting is not None, meeting is not None and meeting.was_behind, self._step)
        )
        if not has_met:
            return False
        if self._was_behind:
            for tensor in self._session.tensors().values():
                torch_dist.broadcast(tensor, 0, group=None if tensor.is_cuda else ranks.control)
        total = outer.no_gradient() if meeting is None else meeting.total
        torch_dist.broadcast(total, 0, group=ranks.control)
        self._tell(outer.step(total))
        return True

    def _tell(self, given: Sequence[int]) -> None:
        """Name those that took part in an outer step; that is told once, by node 0."""
        rank = self._session.ranks.rank
        if given and rank.number == 0:
            absent = [node for node in range(rank.nodes) if node not in given]
            without = f"; without {_named(absent)}" if absent else ""
            print(f"outer step after step {self._step}: {_named(given)}{without}", flush=True)

    def _give(self) -> State:
        tensors = {name: tensor.detach().cpu() for name, tensor in self._session.tensors().items()}
        return {"step": self._step, "tensors": tensors}

    @torch.no_grad()
    def _take(self, state: State) -> None:
        here: dict[str, Tensor] = self._session.tensors()
        for name, tensor in state["tensors"].items():
            here[name].copy_(tensor)
        self._step = state["step"]
