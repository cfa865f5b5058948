"""Run ids and the names a user may type for them."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from launcher.core import Phase, Run
from launcher.core.errors import NoSuchRunError
from launcher.ledger.run_ids import find_run, new_id
from launcher.ledger.sqlite import SqliteLedger


@pytest.fixture
def ledger(tmp_path: Path) -> SqliteLedger:
    ledger = SqliteLedger(tmp_path / "ledger.db", now=lambda: 0.0, alive=lambda _: True)
    for number, run_id in enumerate(["calm-heron-0001", "calm-hare-0002", "calm-heron-00012"]):
        ledger.add(
            Run(
                id=run_id,
                job="j",
                spec_json="{}",
                provider="local",
                phase=Phase.PLAN,
                out_dir="/o",
                created_at=float(number),
                phase_at=0.0,
            )
        )
    return ledger


def test_ids_are_readable_and_hardly_ever_the_same() -> None:
    chance = random.Random(1)
    ids = {new_id(chance) for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"[a-z]+-[a-z]+-[0-9a-f]{4}", run_id) for run_id in ids)


@pytest.mark.parametrize(
    ("name", "run_id"),
    [
        ("calm-ha", "calm-hare-0002"),
        ("calm-heron-0001", "calm-heron-0001"),
        ("last", "calm-heron-00012"),
    ],
    ids=["the start of one", "an id that starts another", "last"],
)
def test_a_name_finds_its_run(ledger: SqliteLedger, name: str, run_id: str) -> None:
    assert find_run(ledger, name).id == run_id


def test_a_name_that_could_be_several_is_refused_with_all_of_them(ledger: SqliteLedger) -> None:
    with pytest.raises(NoSuchRunError, match=r"calm-heron-00012, calm-hare-0002, calm-heron-0001"):
        find_run(ledger, "calm")


def test_a_name_with_a_slip_is_answered_with_the_nearest(ledger: SqliteLedger) -> None:
    with pytest.raises(NoSuchRunError, match="did you mean calm-hare-0002"):
        find_run(ledger, "clam-hare-0002")
