"""Every recorded offer is read as it was meant, and left or removed by the limits that it fails."""

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from tests.jobs import train_job
from tests.launcher.providers.vast.recorded_offers import JOBS, OFFERS, RecordedOffer
from tests.launcher.providers.vast.rows import LOCK
from vastrun.launcher.core.job import Limits, Resources
from vastrun.launcher.providers.vast.funnel import funnel
from vastrun.launcher.providers.vast.rows import OfferRow


@pytest.mark.parametrize("recorded", OFFERS.values(), ids=OFFERS)
def test_a_recorded_offer_is_read(recorded: RecordedOffer) -> None:
    row = OfferRow.of(recorded.row)
    assert row is not None
    assert {name: getattr(row, name) for name in recorded.fields} == recorded.fields


def verdicts() -> Iterator[ParameterSet]:
    for name, recorded in OFFERS.items():
        for job, fails in recorded.fails.items():
            yield pytest.param(recorded, job, fails, id=f"{name}: {job}")


@pytest.mark.parametrize(("recorded", "job", "fails"), list(verdicts()))
def test_a_recorded_offer_is_left_or_removed_by_the_limits_that_it_fails(
    recorded: RecordedOffer, job: str, fails: tuple[str, ...]
) -> None:
    spec = train_job(resources=Resources(**JOBS[job]), limits=Limits(hours=10))
    seen = funnel([recorded.row], spec, LOCK, recorded.seen_at)
    assert [limit.name for limit in seen.removed] == list(fails[:1])
    assert len(seen.left) == (not fails)
    assert [limit.name for limit in seen.relaxed] == (list(fails) if len(fails) == 1 else [])
