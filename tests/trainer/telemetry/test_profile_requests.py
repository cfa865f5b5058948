"""Profile requests: a training reads each request once, and answers it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vastrun.contract import layout
from vastrun.contract.profiling import ProfileRequest, ProfileResponse
from vastrun.trainer.telemetry.profile_requests import POLL_INTERVAL_S, ProfileRequests

ID = "0123456789abcdef"


class Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def request(box: Path, **values: Any) -> None:
    path = box / layout.PROFILE_REQUEST
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"id": ID, "steps": 5} | values))


def later(requests: ProfileRequests, clock: Clock) -> ProfileRequest | None:
    clock.now_s += POLL_INTERVAL_S
    return requests.next_request()


def test_a_request_is_returned_once_and_not_before_the_next_poll(tmp_path: Path) -> None:
    clock = Clock()
    requests = ProfileRequests(tmp_path, clock)
    assert later(requests, clock) is None
    request(tmp_path)
    assert requests.next_request() is None
    assert later(requests, clock) == ProfileRequest(id=ID, steps=5)
    assert later(requests, clock) is None


def test_a_request_that_a_former_start_answered_is_not_answered_again(tmp_path: Path) -> None:
    clock = Clock()
    request(tmp_path)
    requests = ProfileRequests(tmp_path, clock)
    assert later(requests, clock) is not None
    requests.respond(ProfileResponse(id=ID, step=7, fault="none"))
    assert later(ProfileRequests(tmp_path, clock), clock) is None
    request(tmp_path, id="f" * 16)
    assert later(ProfileRequests(tmp_path, clock), clock) is not None


@pytest.mark.parametrize("values", [{"id": "../x"}, {"steps": 0}, {"steps": 101}, {"steps": "many"}])
def test_an_invalid_request_is_noted_and_ignored(
    values: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    requests = ProfileRequests(tmp_path, clock)
    request(tmp_path, **values)
    assert later(requests, clock) is None
    assert "not a valid request" in capsys.readouterr().out
