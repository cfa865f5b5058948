"""How long each phase of a run took, and what it cost."""

from itertools import pairwise

from tests.runs import a_run
from vastrun.launcher.commands.report import PhaseSpan, timeline_of
from vastrun.launcher.core import Event, Phase

RUN = a_run(phase=Phase.ENDED, out_dir="/nowhere", created_at=100.0, phase_at=500.0, ended_at=500.0)
EVENTS = [
    Event(run_id=RUN.id, at=at, phase=phase, text="", usd=usd)
    for at, phase, usd in [
        (110.0, Phase.PLAN, 0.0),
        (120.0, Phase.RENT, 0.0),
        (180.0, Phase.BOOT, 0.06),
        (190.0, Phase.SHIP, 0.07),
        (200.0, Phase.TRAIN, 0.08),
        (400.0, Phase.TRAIN, 0.28),
        (480.0, Phase.COLLECT, 0.36),
        (500.0, Phase.DESTROY, 0.38),
    ]
]


def spans(trained_until: float | None = None, events: list[Event] = EVENTS) -> list[PhaseSpan]:
    return timeline_of(RUN, events, trained_until=trained_until, usd=0.4, now=900.0)


def test_the_phases_follow_one_another_and_add_up() -> None:
    found = spans()
    assert [span.phase for span in found] == [*Phase][:-1]
    assert found[0].start == RUN.created_at and found[-1].end == RUN.ended_at
    assert all(one.end == other.start for one, other in pairwise(found))
    assert round(sum(span.usd for span in found), 9) == 0.4


def test_the_training_ends_when_the_box_says_so_between_what_was_seen() -> None:
    training = {until: spans(until)[4] for until in (None, 440.0, 5.0, 9e9)}
    assert (training[440.0].end, round(training[440.0].usd, 3)) == (440.0, 0.25)
    assert training[None].end == training[5.0].end == training[9e9].end == 400.0


def test_a_clock_that_was_set_back_makes_no_phase_shorter_than_nothing() -> None:
    moved = [*EVENTS[:5], Event(run_id=RUN.id, at=20.0, phase=Phase.COLLECT, text="", usd=0.01), EVENTS[-1]]
    assert all(span.seconds >= 0 and span.usd >= 0 for span in spans(events=moved))


def test_a_run_without_a_diary_has_no_timeline() -> None:
    assert spans(events=[]) == []
