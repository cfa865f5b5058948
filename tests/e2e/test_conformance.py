"""A live service that is not as assumed: each deviation is named, nothing stays rented."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from launcher.providers.vast.conformance.assumption import State
from launcher.providers.vast.conformance.assumptions import ASSUMPTIONS
from tests.e2e.conformance import DEVIATIONS, USD, Examined

pytestmark = pytest.mark.torch

QUICK = ("offer.units", "create.again", "key.list", "box.cuda", "destroy.again")
"""The others are slow."""


def _cases() -> list[ParameterSet]:
    return [
        pytest.param(name, id=name, marks=() if name in QUICK else pytest.mark.slow) for name in DEVIATIONS
    ]


def test_every_assumption_has_a_deviation() -> None:
    assert list(DEVIATIONS) == list(ASSUMPTIONS)


def test_all_agrees_with_the_emulator_as_it_is(tmp_path: Path) -> None:
    with Examined(tmp_path) as examined:
        report = examined.examine()
        assert [
            (one.name, one.seen_text) for one in report.comparisons if one.state is not State.AGREES
        ] == []
        assert report.exit_code == 0
        assert len(examined.vast.instances) == 0


@pytest.mark.parametrize("name", _cases())
def test_a_deviation_is_named_and_nothing_stays_rented(name: str, tmp_path: Path) -> None:
    deviation = DEVIATIONS[name]
    with Examined(
        tmp_path, {name: deviation.value}, factor=deviation.factor, watch_s=deviation.watch_s
    ) as examined:
        report = examined.examine()
        assert name in [one.name for one in report.deviating], report
        assert report.exit_code in (11, 12)
        assert len(examined.vast.instances) == 0
        assert examined.vast.billing.total_usd() <= USD
