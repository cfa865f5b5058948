"""Hosts that failed are avoided for a while, and those that were not to blame are not."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.jobs import train_job
from tests.launcher.world import World
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, MeasuredRun, Phase, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.history import (
    MAX_RUNS,
    AvoidedHosts,
    HostRecord,
    Speed,
    SpeedHistory,
    avoided,
    blames_host,
    host_records,
    speed_history_of,
)
from vastrun.trainer.job.config import TrainConfig

NOW = 1_800_000_000.0
DAY_S = 86_400.0

OFFER = rtx_4090(gpus=2)


def run(*, age_s: float = 0.0, lasted_s: float = 100.0, **changes: object) -> Run:
    """A run on machine m1 that failed through its host, so long ago."""
    ended_at = NOW - age_s
    made = a_run(
        spec_json=dump_job(train_job()),
        provider="vast",
        phase=Phase.ENDED,
        created_at=ended_at - lasted_s,
        phase_at=ended_at,
        offer=OFFER,
        host="m1",
        usd_per_hour=3.6,
        rented_at=ended_at - lasted_s,
        released_at=ended_at,
        ended_at=ended_at,
        cause=Cause.HOST,
        failed_in=Phase.BOOT,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ages_days", "is_avoided"),
    [
        ([], False),
        ([0.99999], True),
        ([1.0], False),
        ([1.0, 2.0], True),
        ([7.0, 7.0], True),
        ([7.1, 7.1], False),
        ([13.0, 13.0, 13.0, 13.0], True),
        ([15.0, 15.0, 15.0, 15.0], False),
    ],
)
def test_a_host_is_avoided_after_one_fresh_or_two_recent_failures_and_forgiven_with_time(
    ages_days: list[float], is_avoided: bool
) -> None:
    runs = [run(age_s=days * DAY_S) for days in ages_days]
    assert ("m1" in avoided(runs, "vast", NOW).machines) is is_avoided


@pytest.mark.parametrize(
    ("changes", "blamed"),
    [
        ({"cause": Cause.HOST, "failed_in": Phase.TRAIN}, True),
        ({"cause": Cause.COMMUNICATION, "failed_in": Phase.BOOT}, True),
        ({"cause": Cause.COMMUNICATION, "failed_in": Phase.TRAIN, "step": 0}, False),
        ({"cause": Cause.LOST, "failed_in": Phase.TRAIN}, True),
        ({"cause": Cause.OUTPUTS_LOST, "failed_in": Phase.TRAIN}, False),
        ({"cause": Cause.LOST, "failed_in": Phase.BOOT}, True),
        ({"cause": Cause.LOST, "failed_in": Phase.SHIP, "rented_at": NOW - 900}, False),
        ({"cause": Cause.USER_ERROR, "failed_in": Phase.BOOT}, False),
        ({"cause": Cause.PROVIDER, "failed_in": Phase.BOOT}, False),
        ({"cause": Cause.PREEMPTED}, False),
        ({"cause": None, "failed_in": None}, False),
    ],
)
def test_a_host_is_blamed_for_what_only_it_can_cause(changes: dict[str, object], blamed: bool) -> None:
    assert blames_host(run(**changes)) is blamed  # type: ignore[arg-type]


@pytest.mark.parametrize(("last", "former"), [(Cause.LOST, Cause.HOST), (Cause.HOST, Cause.LOST)])
def test_a_record_has_the_last_run_and_the_last_failure_of_its_host(last: Cause, former: Cause) -> None:
    runs = [
        run(age_s=2 * DAY_S, cause=last, failed_in=Phase.TRAIN),
        run(age_s=3 * DAY_S, cause=former),
        run(cause=None, failed_in=None, offer=replace(OFFER, description="4 x RTX 4090")),
    ]
    (record,) = host_records(runs, NOW)
    assert replace(record, score=0.0, avoided_until=None) == HostRecord(
        provider="vast",
        host="m1",
        description="4 x RTX 4090",
        runs=3,
        failures=2,
        score=0.0,
        last_run_at=NOW - 100,
        last_failure_at=NOW - 2 * DAY_S,
        last_cause=last,
        avoided="machine",
    )
    assert record.score == pytest.approx(0.5 ** (2 / 7) + 0.5 ** (3 / 7))
    assert record.avoided_until is not None
    for later_s, is_avoided in ((-60.0, True), (60.0, False)):
        assert ("m1" in avoided(runs, "vast", record.avoided_until + later_s).machines) is is_avoided


def test_hosts_of_another_provider_are_another_s() -> None:
    assert avoided([run(provider="docker")], "vast", NOW) == AvoidedHosts()


def test_what_a_host_did_to_a_run_on_a_slot_counts_and_the_loss_of_its_machine_counts_once() -> None:
    assert avoided([run(provider="pool")], "vast", NOW).machines == {"m1"}
    assert avoided([run(provider="pool", cause=Cause.LOST)], "vast", NOW) == AvoidedHosts()


def test_a_computer_that_costs_nothing_is_never_avoided() -> None:
    assert avoided([run(usd_per_hour=0.0), run(usd_per_hour=0.0)], "vast", NOW) == AvoidedHosts()


def test_a_host_that_was_planned_for_but_never_rented_has_no_record() -> None:
    assert not host_records([run(rented_at=None)], NOW)


def test_a_failure_is_dated_by_the_end_of_its_machine_else_of_its_run_and_never_in_the_future() -> None:
    released = run(age_s=7 * DAY_S)
    ended = replace(released, released_at=None, phase_at=NOW)
    for failed in (released, ended, replace(ended, ended_at=None, phase_at=NOW - 7 * DAY_S)):
        (record,) = host_records([failed], NOW)
        assert record.last_failure_at == NOW - 7 * DAY_S
        assert record.score == pytest.approx(0.5)
    (record,) = host_records([run(age_s=-DAY_S)], NOW)
    assert record.score == 1.0


def test_of_hosts_that_are_as_bad_the_one_that_was_rented_last_comes_first() -> None:
    runs = [
        run(host=host, cause=None, age_s=age_s) for host, age_s in (("m1", 50.0), ("m2", 0.0), ("m3", 99.0))
    ]
    assert [record.host for record in host_records(runs, NOW)] == ["m2", "m1", "m3"]
    assert [record.score for record in host_records(runs, NOW)] == [0.0, 0.0, 0.0]


def test_the_worst_host_comes_first() -> None:
    runs = [run(host="m1", age_s=5 * DAY_S), run(host="m2"), run(host="m3", cause=None)]
    assert [record.host for record in host_records(runs, NOW)] == ["m2", "m1", "m3"]


SITE = "45.3.2.1"


def at(machine: str, *, account: str = "7", address: str = "", **changes: object) -> Run:
    """A run on that machine of an account, at a site."""
    offer = rtx_4090(host=machine, host_account=account, address=address)
    return run(host=machine, offer=offer, **changes)  # type: ignore[arg-type]


def test_a_machine_that_failed_speaks_against_its_site_and_one_alone_not_against_its_account() -> None:
    avoid = avoided([at("m1", address=SITE)], "vast", NOW)
    assert avoid.covers(rtx_4090(host="m2", host_account="8", address=SITE))
    assert not avoid.covers(rtx_4090(host="m2", host_account="7", address="45.3.2.2"))


def test_a_second_machine_that_failed_speaks_against_the_account_of_both() -> None:
    avoid = avoided([at("m1", address=SITE), at("m2", address="45.3.2.2")], "vast", NOW)
    assert avoid.covers(rtx_4090(host="m3", host_account="7", address="45.3.2.3"))
    assert not avoid.covers(rtx_4090(host="m3", host_account="8", address="45.3.2.3"))


def test_failures_of_one_machine_and_those_that_are_forgiven_do_not_speak_against_an_account() -> None:
    other = rtx_4090(host="m3", host_account="7")
    assert not avoided([at("m1"), at("m1")], "vast", NOW).covers(other)
    assert not avoided([at("m1"), at("m2", age_s=2 * DAY_S)], "vast", NOW).covers(other)


def test_machines_whose_account_and_address_are_unknown_have_neither_in_common() -> None:
    avoid = avoided([at("m1", account=""), at("m2", account="")], "vast", NOW)
    assert not avoid.covers(rtx_4090(host="m3"))


def test_a_record_says_what_is_avoided_of_a_machine_that_did_well() -> None:
    well = {"cause": None, "failed_in": None}
    runs = [
        at("m1", address=SITE),
        at("m2", address="45.3.2.2"),
        at("m3", account="8", address=SITE, **well),
        at("m4", address="45.3.2.4", **well),
        at("m5", account="8", address="45.3.2.5", **well),
    ]
    records = host_records(runs, NOW)
    (until,) = {record.avoided_until for record in records if record.avoided}
    assert avoided(runs, "vast", until - 60) and avoided(runs, "vast", until + 60) == AvoidedHosts()
    assert {record.host: record.avoided for record in records} == {
        "m1": "machine",
        "m2": "machine",
        "m3": "address",
        "m4": "account",
        "m5": None,
    }
    assert AvoidedHosts.among(records) == avoided(runs, "vast", NOW)


JOB = train_job()


def measured(
    steps_per_s: float | None, spec: JobSpec = JOB, *, gpu: str = "RTX 4090", host: str = "h1"
) -> MeasuredRun:
    return MeasuredRun(
        provider="vast",
        host=host,
        gpu_name=gpu,
        gpus=2,
        gpu_memory_gb=24.0,
        spec_json=dump_job(spec),
        steps_per_s=steps_per_s,
        boot_s=60.0 if host == "h1" else 600.0,
    )


def test_the_speed_of_a_kind_of_machine_is_the_median_of_the_runs_on_it() -> None:
    runs = [
        measured(2.0),
        measured(9.0),
        measured(3.0),
        measured(None),
        measured(5.0, gpu="A100 SXM4", host="h2"),
    ]
    assert speed_history_of(runs, "vast", JOB) == SpeedHistory(
        speeds={
            ("RTX 4090", 2): Speed(steps_per_s=3.0, runs=3),
            ("A100 SXM4", 2): Speed(steps_per_s=5.0, runs=1),
        },
        boot_s={"h1": 60.0, "h2": 600.0},
    )
    assert speed_history_of(runs, "local", JOB) == SpeedHistory()


def test_how_often_machines_were_taken_away_is_learned_from_bids() -> None:
    taken, kept = (replace(measured(None), bid_hours=hours) for hours in (6.0, 24.0))
    bids = [replace(taken, preempted=True), kept]
    assert speed_history_of([], "vast", JOB).preemptions_per_hour == 0.1
    assert speed_history_of([*bids, measured(2.0)], "vast", JOB).preemptions_per_hour == 2 / 40


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        (train_job(steps=5000), True),
        (train_job(limits=replace(JOB.limits, hours=9.0)), True),
        (train_job(train=TrainConfig(steps=10, batch=16)), False),
        (train_job(name="another"), True),
        (train_job(ranks=4), False),
    ],
    ids=["longer", "other limits", "a larger batch", "another name", "more ranks"],
)
def test_only_runs_whose_steps_were_the_same_work_count(other: JobSpec, counts: bool) -> None:
    assert bool(speed_history_of([measured(2.0, other)], "vast", JOB).speeds) is counts


def test_only_the_newest_runs_of_a_kind_count() -> None:
    runs = [*[measured(2.0)] * MAX_RUNS, *[measured(9.0)] * MAX_RUNS]
    (speed,) = speed_history_of(runs, "vast", JOB).speeds.values()
    assert speed == Speed(steps_per_s=2.0, runs=MAX_RUNS)


def test_a_host_s_own_runs_can_be_left_out() -> None:
    runs = [measured(1.0, host="slow"), measured(2.0), measured(2.0)]
    history = speed_history_of(runs, "vast", JOB, excluded_host="slow")
    assert history.speeds["RTX 4090", 2] == Speed(steps_per_s=2.0, runs=2)


def test_a_job_that_cannot_count_is_not_even_read() -> None:
    broken = replace(measured(None), spec_json="{")
    other = replace(measured(2.0), provider="local", spec_json="{")
    late = replace(measured(2.0), spec_json="{")
    runs = [broken, other, *[measured(2.0)] * MAX_RUNS, late]
    assert speed_history_of(runs, "vast", JOB).speeds["RTX 4090", 2].runs == MAX_RUNS


def test_a_run_notes_how_fast_it_trained_and_how_long_its_machine_took(tmp_path: Path) -> None:
    world = World(tmp_path, spec=train_job(steps=60), training=Training(seconds=120.0, steps=60))
    world.market.loading["host-1"] = Loading(seconds=120.0, layer_s=20.0)
    ended = world.launch()
    assert ended.cause is None, ended.detail
    assert ended.steps_per_s == pytest.approx(0.5, rel=0.1)
    assert ended.boot_s == pytest.approx(120.0, abs=2.0)


def test_too_short_a_training_says_nothing_of_a_machine_s_speed(world: World) -> None:
    assert world.launch().steps_per_s is None
