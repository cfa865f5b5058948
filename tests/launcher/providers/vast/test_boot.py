"""A box that never comes up is known by its row, whatever it says; one that lags is left alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.providers.vast.rows import DAY_S, NOW, instance, instance_row
from vastrun.launcher.core import Cause
from vastrun.launcher.decisions import policy
from vastrun.launcher.flow.boot import BootTimeouts
from vastrun.launcher.providers.vast import instance_row as boot
from vastrun.launcher.providers.vast.instance_row import stop_error

LOADING = {"actual_status": "loading", "ports": None}
DAEMON = "Error response from daemon:"
STOPPED = {"actual_status": "exited", "cur_state": "stopped", "intended_status": "stopped"}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"status_msg": "Error response from daemon: manifest for x/y:z not found"}, Cause.USER_ERROR),
        ({"status_msg": "pull access denied for x/y"}, Cause.USER_ERROR),
        ({"status_msg": "unauthorized: authentication required"}, Cause.USER_ERROR),
        ({"status_msg": 'failed to resolve reference "docker.io/x"'}, Cause.USER_ERROR),
        ({"status_msg": "manifest unknown: manifest unknown"}, Cause.USER_ERROR),
        ({"status_msg": f"{DAEMON} no matching manifest for linux/amd64"}, Cause.USER_ERROR),
        ({"status_msg": f"{DAEMON} Head https://ghcr.io/v2/x/y: denied: denied"}, Cause.USER_ERROR),
        ({"status_msg": f"{DAEMON} Get https://r.io/v2/: unauthorized: access token"}, Cause.USER_ERROR),
        ({"status_msg": f"{DAEMON} toomanyrequests: You have reached your pull rate limit."}, Cause.PROVIDER),
        ({"cur_state": "stopped", "intended_status": "stopped", "status_msg": None}, Cause.HOST),
    ],
)
def test_a_dead_state_is_recognised_with_its_cause(changes: dict[str, Any], cause: Cause) -> None:
    fault = boot.fault(instance_row(**(LOADING | changes)))
    assert fault is not None
    assert fault.cause is cause


@pytest.mark.parametrize(
    "changes",
    [
        {"actual_status": None, "status_msg": None},
        {"actual_status": "created"},
        {"status_msg": "6a0ac1617861: Pulling fs layer\n"},
        {"status_msg": "6a0ac1617861: Pull complete\n"},
        {"status_msg": "0d30c18b26f8: Retrying in 5 seconds"},
        {"status_msg": f"{DAEMON} failed to create task for container: OCI runtime create failed"},
        {"actual_status": "running", "status_msg": "pull access denied, before it ran"},
        {"actual_status": "exited", "cur_state": "stopped", "intended_status": "stopped"},
    ],
)
def test_a_box_on_its_way_is_not_given_up(changes: dict[str, Any]) -> None:
    assert boot.fault(instance_row(**(LOADING | changes))) is None


@pytest.mark.parametrize("status", ["running", "exited", "offline", "unknown", "frozen"])
def test_a_box_is_tried_whatever_its_lagging_status_says(status: str) -> None:
    assert boot.may_be_reachable(instance_row(actual_status=status), NOW)


@pytest.mark.parametrize(
    ("changes", "is_tried"),
    [
        ({}, False),
        ({"status_msg": "success, running x/ssh"}, True),
        ({"uptime_mins": 57}, True),
        ({"ports": instance()["ports"]}, True),
        ({"start_date": NOW - 600}, True),
        ({"start_date": NOW - 600, "cur_state": None}, False),
        ({"start_date": NOW - 600, "cur_state": "stopped", "intended_status": "stopped"}, False),
    ],
)
def test_a_machine_that_may_serve_is_tried_though_it_is_listed_as_loading(
    changes: dict[str, Any], is_tried: bool
) -> None:
    row = instance_row(**(LOADING | {"status_msg": "", "uptime_mins": None} | changes))
    assert boot.may_be_reachable(row, NOW) is is_tried


def test_the_progress_is_the_last_thing_that_the_host_said() -> None:
    row = instance_row(**LOADING, status_msg="a: Pull complete\nb: Pulling fs layer\n")
    assert boot.progress(row) == "loading: b: Pulling fs layer"


@pytest.mark.parametrize(
    ("changes", "credit_usd", "cause", "text"),
    [
        ({"is_bid": True}, 10.0, Cause.PREEMPTED, "outbid"),
        ({"is_bid": True}, 0.0, Cause.PROVIDER, "credit is used up"),
        ({"is_bid": True, "end_date": NOW - 1}, 10.0, Cause.LOST, "contract ended"),
        ({"is_bid": False}, -2.5, Cause.PROVIDER, "credit is used up"),
        ({"is_bid": False, "end_date": NOW - 1}, 10.0, Cause.LOST, "contract ended"),
        ({"is_bid": False, "end_date": NOW + DAY_S}, 10.0, Cause.LOST, "not by this launcher"),
        ({"is_bid": False, "end_date": None}, 10.0, Cause.LOST, "not by this launcher"),
    ],
)
def test_each_stop_has_its_own_cause(
    changes: dict[str, Any], credit_usd: float, cause: Cause, text: str
) -> None:
    error = stop_error(instance_row(**STOPPED, **changes), credit_usd=credit_usd, now=NOW)
    assert error.cause is cause
    assert text in str(error)


_CATALOGUE: dict[str, list[str]] = json.loads(
    (Path(__file__).parent / "recordings" / "status-messages.json").read_text(encoding="utf-8")
)
HARMLESS = _CATALOGUE.pop("not a fault")
CATALOGUE = [text for texts in _CATALOGUE.values() for text in texts]
OTHERS = (
    "error pulling image configuration: download failed after attempts=6",
    "failed to register layer: unexpected eof",
    "Error response from daemon: mkdir /var/lib/docker: permission denied",
    "Error response from daemon: Bind for 0.0.0.0:40101 failed: port is already allocated",
    "write /var/lib/docker: no space left on device",
    "docker_build() error writing dockerfile",
    "a text that nobody has seen before",
)


def ended_after_s(*texts: str) -> float:
    """Seconds of the wait for a machine that reports these texts, one a second, and stays with the last."""
    timeouts = BootTimeouts(started_at=NOW, progress_at=NOW)
    for second in range(3600):
        text = texts[min(second, len(texts) - 1)]
        row = instance_row(actual_status="loading", cur_state="running", ports=None, status_msg=text)
        assert boot.fault(row) is None
        if timeouts.exceeded_limit(NOW + second):
            assert text in timeouts.exceeded_limit(NOW + second)
            return second
        timeouts.note_silent(row, NOW + second)
    return 3600


def test_the_catalogue_is_whole() -> None:
    assert (len(CATALOGUE), len(HARMLESS)) == (28, 4)


@pytest.mark.parametrize("text", [*CATALOGUE, *OTHERS])
def test_an_error_that_stands_still_ends_the_wait_soon_and_blames_no_job(text: str) -> None:
    assert boot.cause_in(text) is None
    assert ended_after_s("a3ed95caeb02: Pulling fs layer", text) <= policy.STALLED_S + 5


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_fault_does_not_end_the_wait_before_that(text: str) -> None:
    assert ended_after_s(text) >= policy.STALLED_S
    assert boot.cause_in(text) is None


def test_a_layer_that_stands_still_has_the_long_limit() -> None:
    assert ended_after_s("79436a159dbf: Pull complete") > policy.NO_PROGRESS_S
