"""Each limit of a boot holds to the second, the most telling one first, and news are reported in time."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from vastrun.launcher.core import Instance
from vastrun.launcher.core.errors import HostKeyError, KeyNotAttachedError
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.boot import BootTimeouts

MACHINE = Instance(
    id="7",
    label="vastrun-calm-heron-3f1a",
    state="loading",
    usd_per_hour=3.6,
    host="host-1",
    rented_at=0.0,
    note="Priority",
)
RUNNING = replace(MACHINE, state="running", note="")
LAYER = replace(MACHINE, note="a1b2c3: Pulling fs layer")
RETRY = replace(MACHINE, note="a1b2c3: Retrying in 5 seconds")
AT = 50.0
Note = Callable[[BootTimeouts, float], object]


def timeouts() -> BootTimeouts:
    return BootTimeouts(started_at=AT, progress_at=AT)


NOTES: dict[str, tuple[Note, float, str]] = {
    "queued": (lambda t, at: t.note_queued(MACHINE, at), 86_400, "its turn did not come (Priority)"),
    "answers": (lambda t, at: t.note_answer("none", at), 60, "the lease is not armed but none"),
    "no box": (lambda t, at: t.note_no_box(at), 120, "it answers, but its onstart script did not run"),
    "rejected": (lambda t, at: t.note_rejected(KeyNotAttachedError("no key"), at), 30, "no key"),
    "untrusted": (lambda t, at: t.note_untrusted(HostKeyError("another"), at), 40, "another"),
    "silent": (lambda t, at: t.note_silent(RUNNING, at), 300, "it runs but does not answer"),
    "stalled": (lambda t, at: t.note_silent(MACHINE, at), 120, "it makes no progress (loading: Priority)"),
    "stuck": (
        lambda t, at: t.note_silent(LAYER, at),
        *(900, "it makes no progress (loading: a1b2c3: Pulling fs layer)"),
    ),
    "mute": (
        lambda t, at: t.note_silent(replace(MACHINE, note=""), at),
        *(900, "it makes no progress (loading)"),
    ),
}


@pytest.mark.parametrize("name", NOTES)
def test_a_limit_counts_from_the_first_note_and_is_passed_after_it_not_at_it(name: str) -> None:
    note, limit_s, text = NOTES[name]
    boot = timeouts()
    note(boot, AT)
    note(boot, AT + limit_s)
    assert boot.exceeded_limit(AT + limit_s) == ""
    assert boot.exceeded_limit(AT + limit_s + 0.1) == f"{text} after {limit_s:.0f} s"


@pytest.mark.parametrize(
    ("machine", "max_boot_s", "layer_age_s", "limit_s"),
    [
        (MACHINE, policy.MAX_BOOT_S, 0, 2400),
        (LAYER, policy.MAX_BOOT_S, 0, 5400),
        (LAYER, policy.MAX_BOOT_S, 300, 5400),
        (LAYER, policy.MAX_BOOT_S, 300.2, 2400),
        (LAYER, 1000.0, 0, 1000),
    ],
)
def test_a_boot_may_last_longer_while_layers_of_its_image_arrive(
    machine: Instance, max_boot_s: float, layer_age_s: float, limit_s: float
) -> None:
    boot = replace(timeouts(), max_boot_s=max_boot_s)
    shown = f"loading: {machine.note}"
    for over_s, said in ((0.0, ""), (0.1, f"it is not ready ({shown}) after {limit_s:.0f} s")):
        now = AT + limit_s + over_s
        boot.note_silent(machine, now - layer_age_s)
        boot.progress_at = now
        assert boot.exceeded_limit(now) == said
        boot.progress = ""


def test_a_countdown_to_another_try_is_no_progress() -> None:
    boot = timeouts()
    boot.note_silent(LAYER, AT)
    for seconds in range(15, 0, -1):
        boot.note_silent(replace(RETRY, note=f"a1b2c3: Retrying in {seconds} seconds"), AT + 515 - seconds)
    assert boot.exceeded_limit(AT + 620) == ""
    assert boot.exceeded_limit(AT + 620.1).startswith("it makes no progress (loading: a1b2c3: Retrying")


def test_errors_that_alternate_are_no_progress() -> None:
    boot = timeouts()
    for second in range(122):
        boot.note_silent(replace(MACHINE, note=("?", "GPU 1 is busy")[second % 2]), AT + second)
    assert boot.exceeded_limit(AT + 121) == ""
    assert boot.exceeded_limit(AT + 121.1).startswith("it makes no progress (loading: GPU 1 is busy)")


def test_a_pull_that_goes_on_after_a_failed_try_has_the_long_limit_again() -> None:
    boot = timeouts()
    boot.note_silent(RETRY, AT)
    boot.note_silent(LAYER, AT + 100)
    assert boot.exceeded_limit(AT + 1000) == ""
    assert boot.exceeded_limit(AT + 1000.1).startswith("it makes no progress")


def test_layers_that_move_for_three_hours_are_progress() -> None:
    boot = replace(timeouts(), max_boot_s=math.inf)
    for second in range(0, 177 * 60, 30):
        boot.note_silent(replace(LAYER, note=f"a1b2c3: Downloading {second}B"), AT + second)
        assert boot.exceeded_limit(AT + second) == ""


def test_news_of_one_state_come_every_30_seconds_and_a_new_state_at_once() -> None:
    boot = timeouts()
    told = [
        boot.note_silent(replace(MACHINE, state=state, note=f"{n}"), AT + after_s)
        for n, (state, after_s) in enumerate(
            [("created", 0), ("loading", 0.5), ("loading", 30), ("loading", 30.5), ("loading", 31)]
        )
    ]
    assert told == ["created: 0", "loading: 1", "", "loading: 3", ""]
    assert boot.note_silent(replace(MACHINE, note="3"), AT + 90) == "", "it was told before"
    assert boot.note_silent(replace(RUNNING, note="x"), AT + 91) == "running"


def test_news_of_a_queue_come_after_3_seconds_and_then_every_15() -> None:
    boot = timeouts()
    told = [boot.note_queued(MACHINE, AT + s) for s in (0, 2.9, 3, 17.9, 18, 3600)]
    line = "waits for its turn: Priority; {} min more at most"
    assert told == ["", "", line.format(1440), "", line.format(1440), line.format(1380)]


def test_news_of_a_provider_that_cannot_be_asked_come_every_15_seconds_or_with_another_reason() -> None:
    boot = timeouts()
    asked = (("500", 0), ("500", 14.9), ("502", 14.95), ("502", 29.9), ("502", 29.95), ("502", 9000))
    told = [boot.note_provider_error(f"HTTP {code}", AT + s) for code, s in asked]
    line = "cannot check the machine: HTTP {}; waits {} min more at most"
    expected = [line.format(500, 40), "", line.format(502, 40), "", line.format(502, 40), line.format(502, 0)]
    assert told == expected


@pytest.mark.parametrize("name", ["answers", "no box", "untrusted", "silent"])
def test_whatever_is_seen_ends_what_was_seen_before(name: str) -> None:
    note, boot = NOTES[name][0], timeouts()
    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: note(boot, AT),
        lambda: boot.note_provider_error("HTTP 500", AT + 1),
        lambda: note(boot, AT + 2),
        lambda: boot.note_queued(MACHINE, AT + 3),
    ]
    seen = [(step(), boot.is_loading, boot.is_provider_down)[1:] for step in steps]
    assert seen == [(True, False), (False, False), (True, True), (False, False), (True, False)]


def test_a_rejected_key_is_told_once_until_the_machine_answers() -> None:
    boot, error = timeouts(), KeyNotAttachedError("no key")
    assert [boot.note_rejected(error, AT), boot.note_rejected(error, AT + 1)] == ["no key", ""]
    boot.note_answer("armed", AT + 2)
    assert boot.note_rejected(error, AT + 3) == "no key"
    assert boot.exceeded_limit(AT + 33) == ""
