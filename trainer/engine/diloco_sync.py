"""DiLoCo synchronisation: the nodes sync before their first step, and then every `diloco.every` steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.distributed as torch_dist
from torch import Tensor

from vastrun.trainer.distributed.replicas import Replicas, State, SyncRound
from vastrun.trainer.engine.outer_optimizer import OuterOptimizer
from vastrun.trainer.engine.session import Session


def _node_list(nodes: Sequence[int]) -> str:
    return f"node {', '.join(map(str, nodes))}"


class DilocoSync:
    """Synchronisation of one node with the others. All ranks call each method at the same step."""

    def __init__(self, session: Session, outer: OuterOptimizer) -> None:
        """Wait for all nodes. Raises DistNetworkError."""
        self._session, self._outer, self._step = session, outer, session.start
        rank = session.ranks.rank
        self._was_behind = False
        """This node loaded another node's state in the last round."""
        self._replicas = None
        if rank.is_first:
            self._replicas = Replicas(
                rank,
                min_nodes=session.config.diloco.min_nodes or rank.nodes,
                timeout_s=session.job.max_activity_s,
                give=self._state,
                take=self._load_state,
            )

    def start(self) -> Session:
        """Sync before the first step; a node that is behind continues from the state of one that is ahead."""
        if not self._outer.rounds:
            # A new training, or a checkpoint of another strategy, which counts as ahead of a new one.
            self._outer.reset(min(self._step, 1))
        self._sync(trained=False)
        if self._outer.is_due:
            self._sync(trained=not self._was_behind)
        return replace(self._session, start=self._step)

    def after_step(self, step: int, stop_requested: Callable[[], bool]) -> bool:
        """Sync when `step` ends a round. Returns True when a stop was requested before the round completed.

        Other nodes may have stopped on their way here; the round is completed when they start again. A stop
        is ignored at the last step: there is no later start.
        """
        config = self._session.config
        self._step = step
        if step % config.diloco.every:
            return False
        self._outer.is_due = True
        return not self._sync(
            trained=True, stop_requested=stop_requested if step < config.steps else lambda: False
        )

    def _sync(self, *, trained: bool, stop_requested: Callable[[], bool] = lambda: False) -> bool:
        """Sync with the other nodes and broadcast the result on this one. False: stopped before that."""
        ranks, outer = self._session.ranks, self._outer
        sync_round: SyncRound | None = None
        if self._replicas is not None:
            sync_round = self._replicas.meet(
                outer.rounds,
                lambda behind: outer.pseudo_gradient() if trained and not behind else outer.zero_gradient(),
                stop_requested,
            )
        synced, self._was_behind, self._step = ranks.broadcast_object(
            (sync_round is not None, sync_round is not None and sync_round.was_behind, self._step)
        )
        if not synced:
            return False
        if self._was_behind:
            for tensor in self._session.tensors().values():
                torch_dist.broadcast(tensor, 0, group=None if tensor.is_cuda else ranks.control)
        total = outer.zero_gradient() if sync_round is None else sync_round.total
        torch_dist.broadcast(total, 0, group=ranks.control)
        self._report(outer.step(total))
        return True

    def _report(self, contributors: Sequence[int]) -> None:
        """Print the nodes that took part in an outer step; only node 0 prints."""
        rank = self._session.ranks.rank
        if contributors and rank.number == 0:
            absent = [node for node in range(rank.nodes) if node not in contributors]
            without = f"; without {_node_list(absent)}" if absent else ""
            print(f"outer step after step {self._step}: {_node_list(contributors)}{without}", flush=True)

    def _state(self) -> State:
        tensors = {name: tensor.detach().cpu() for name, tensor in self._session.tensors().items()}
        return {"step": self._step, "tensors": tensors}

    @torch.no_grad()
    def _load_state(self, state: State) -> None:
        here: dict[str, Tensor] = self._session.tensors()
        for name, tensor in state["tensors"].items():
            here[name].copy_(tensor)
        self._step = state["step"]
