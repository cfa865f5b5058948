"""Run ids and the names a user may type for them."""

import random
import re
from pathlib import Path

import pytest

from tests.runs import a_run
from vastrun.launcher.core import Phase
from vastrun.launcher.core.errors import NoSuchRunError
from vastrun.launcher.core.labels import new_id
from vastrun.launcher.ledger.run_ids import find_run
from vastrun.launcher.ledger.sqlite import SqliteLedger


@pytest.fixture
def ledger(tmp_path: Path) -> SqliteLedger:
    ledger = SqliteLedger(tmp_path / "ledger.db", now=lambda: 0.0, alive=lambda _: True)
    for number, run_id in enumerate(["calm-heron-0001", "calm-hare-0002", "calm-heron-00012"]):
        ledger.add(a_run(id=run_id, job="j", created_at=float(number), phase_at=0.0))
    return ledger


def test_ids_are_readable_and_hardly_ever_the_same() -> None:
    chance = random.Random(1)
    ids = {new_id(chance) for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"[a-z]+-[a-z]+-[0-9a-f]{4}", run_id) for run_id in ids)


def add(ledger: SqliteLedger, run_id: str, job: str, phase: Phase, at: float) -> None:
    ledger.add(a_run(id=run_id, job=job, phase=phase, created_at=at, phase_at=0.0))


def test_a_jobs_name_is_its_only_open_run_else_its_newest_one(ledger: SqliteLedger) -> None:
    add(ledger, "sly-owl-0001", "mnist", Phase.ENDED, 10.0)
    add(ledger, "sly-elk-0002", "mnist", Phase.ENDED, 11.0)
    assert find_run(ledger, "mnist").id == "sly-elk-0002"
    add(ledger, "sly-fox-0003", "mnist", Phase.TRAIN, 5.0)
    assert find_run(ledger, "mnist").id == "sly-fox-0003"
    add(ledger, "sly-cat-0004", "mnist", Phase.BOOT, 6.0)
    with pytest.raises(NoSuchRunError, match="'mnist' could be any of: sly-cat-0004, sly-fox-0003"):
        find_run(ledger, "mnist")


def test_the_start_of_an_id_comes_before_a_jobs_name(ledger: SqliteLedger) -> None:
    add(ledger, "sly-owl-0001", "calm-ha", Phase.TRAIN, 10.0)
    add(ledger, "sly-elk-0002", "calm", Phase.TRAIN, 11.0)
    assert find_run(ledger, "calm-ha").id == "calm-hare-0002"
    assert find_run(ledger, "calm").id == "sly-elk-0002"


@pytest.mark.parametrize(
    ("name", "run_id"),
    [("calm-ha", "calm-hare-0002"), ("calm-heron-0001", "calm-heron-0001"), ("last", "calm-heron-00012")],
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
