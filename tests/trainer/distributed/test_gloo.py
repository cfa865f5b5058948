"""Groups of gloo on one thread: what is sent in one does not mix with what is sent in the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as torch_dist

from tests.trainer.conftest import together
from trainer.distributed.gloo import new_group_beside
from trainer.distributed.group import Ranks

pytestmark = pytest.mark.torch

ROUNDS = 50


def _in_two_groups(ranks: Ranks) -> tuple[int, bool]:
    """How many threads of gloo a group beside another adds to a rank, and whether all sums were right."""
    before = _threads()
    beside = new_group_beside(ranks.control, timedelta(seconds=60))
    with ThreadPoolExecutor(1) as thread:
        theirs = thread.submit(_sums, beside, 10_000, 1.0)
        own = _sums(ranks.control, 3, -1.0)
        return _threads() - before, own == theirs.result() == [True] * ROUNDS


def _sums(group: torch_dist.ProcessGroup, size: int, sign: float) -> list[bool]:
    right = []
    for number in range(ROUNDS):
        values = torch.full((size,), sign * number)
        torch_dist.all_reduce(values, group=group)
        right.append(bool((values == 2 * sign * number).all()))
    return right


def _threads() -> int:
    """How many look for messages."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return names.count("gloo_tcp_loop")


def test_a_group_beside_another_has_no_thread_of_its_own_and_both_send_at_once() -> None:
    assert together(_in_two_groups, 2) == [(0, True)] * 2
