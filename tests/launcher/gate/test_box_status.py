"""A box's status: what its ranks may cost to read, and what no honest box says of them."""

from __future__ import annotations

import json
import time
import typing
from collections.abc import Sequence

import pytest
from annotated_types import Le

from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_status import parse_box_status


def status(ranks: Sequence[int]) -> str:
    supervisor = {"ranks": [{"rank": rank, "step": 1, "activity": "forward"} for rank in ranks]}
    return json.dumps({"now": 1.8e9, "box": "running", "supervisor": supervisor})


def test_a_status_has_as_many_ranks_as_a_job_may_ask_for() -> None:
    hint = typing.get_type_hints(JobSpec, include_extras=True)["ranks"]
    limits = [
        mark.le
        for arg in typing.get_args(hint)
        for mark in getattr(arg, "__metadata__", ())
        if isinstance(mark, Le)
    ]
    assert limits == [caps.RANKS]
    assert len(parse_box_status(status(range(caps.RANKS))).ranks) == caps.RANKS


@pytest.mark.parametrize("ranks", [range(caps.RANKS + 1), [0] * 9_999])
def test_more_ranks_than_a_machine_has_are_refused_at_once(ranks: Sequence[int]) -> None:
    printed = status(ranks)
    began = time.process_time()
    with pytest.raises(BoxError, match="ranks: expected a length of at most 64"):
        parse_box_status(printed)
    assert time.process_time() - began < 0.5


def test_a_rank_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(BoxError, match="a rank is listed twice"):
        parse_box_status(status([0, 1, 0]))
