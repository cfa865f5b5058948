"""A live service that is not as assumed: each deviation is named, nothing stays rented."""

from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.e2e.conformance import DEVIATIONS, USD, Examined
from vastrun.launcher.cli.conformance import ConformanceReport
from vastrun.launcher.providers.vast.conformance.assumptions import ASSUMPTIONS, State

pytestmark = pytest.mark.torch

QUICK = ("offer.units", "create.again", "key.list", "box.cuda", "destroy.again")
"""The others are slow."""


def _cases() -> list[ParameterSet]:
    return [
        pytest.param(name, id=name, marks=() if name in QUICK else pytest.mark.slow) for name in DEVIATIONS
    ]


def test_every_assumption_has_a_deviation() -> None:
    assert list(DEVIATIONS) == list(ASSUMPTIONS)


@pytest.mark.slow
def test_all_agrees_with_the_emulator_as_it_is(tmp_path: Path) -> None:
    with Examined(tmp_path) as examined:
        report = examined.examine()
        assert [
            (one.name, one.seen_text) for one in report.comparisons if one.state is not State.AGREES
        ] == []
        assert report.exit_code == 0
        assert len(examined.vast.instances) == 0


@pytest.mark.parametrize("name", _cases())
@pytest.mark.slow
def test_a_deviation_is_named_and_nothing_stays_rented(name: str, tmp_path: Path) -> None:
    deviation = DEVIATIONS[name]
    with Examined(
        tmp_path,
        {name: deviation.value},
        factor=deviation.factor,
        watch_s=deviation.watch_s,
    ) as examined:
        report = examined.examine()
        assert name in [one.name for one in report.deviating], _seen(report)
        assert report.exit_code in (11, 12)
        assert len(examined.vast.instances) == 0
        assert examined.vast.billing.total_usd() <= USD


def _seen(report: ConformanceReport) -> list[tuple[str, str, str]]:
    return [(one.name, one.state.value, one.seen_text) for one in report.comparisons]


FAULTS = (
    ("no_answer_done", {"endpoint": "create"}),
    ("bad_gateway_done", {"endpoint": "create"}),
    ("no_answer_done", {"endpoint": "create", "after": 1}),
    ("create_twice", {"seconds": 5.0}),
    ("create_late", {"seconds": 30.0}),
    ("created_stopped", {}),
    ("destroy_ignored", {}),
    ("destroy_delayed", {"seconds": 20.0}),
    ("hidden_row", {"seconds": 30.0}),
    ("host_offline", {}),
    ("relabelled", {}),
    ("ssh_impostor", {}),
    ("ports_list", {"times": 3}),
    ("odd_columns", {"times": 3}),
    ("row_in_list", {"times": 3}),
    ("rows_in_object", {"times": 3}),
    ("null_row", {"times": 3}),
    ("listed_loading", {"times": 10_000}),
)
"""Of those of a run, and of the second order: the others are in test_vast_faults.py."""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "details"), FAULTS, ids=[f"{one[0]}-{one[1]}" for one in FAULTS])
def test_fault_on_the_way_leaves_nothing_rented(fault: str, details: dict[str, Any], tmp_path: Path) -> None:
    with Examined(tmp_path) as examined:
        examined.vast.faults.add(fault, **details)
        report = examined.examine()
        assert fault in examined.vast.faults.struck
        assert report.comparisons
        assert len(examined.vast.instances) == 0
        assert examined.vast.billing.total_usd() <= USD


@pytest.mark.slow
def test_a_machine_that_a_second_order_made_is_on_the_bill_of_the_run(tmp_path: Path) -> None:
    with Examined(tmp_path, {"create.again": "200 success"}) as examined:
        record = examined.examine().record
        first, second = examined.vast.billing.meters.values()
        assert second.total_usd > 0
        assert record.run_usd >= 0.99 * (first.total_usd + second.total_usd)
