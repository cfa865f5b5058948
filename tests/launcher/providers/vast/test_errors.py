"""Every refusal of Vast's becomes one of our errors, with its cause."""

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.instance import Pace
from tests.emulators.vast import VastEmulator
from tests.http_servers import QuietHandler, serving
from tests.launcher.providers.vast.rentals import eventually_refused, rent
from vastrun.launcher.core import Cause, errors
from vastrun.launcher.providers.vast import VastProvider, calls
from vastrun.launcher.providers.vast.calls import RIGHTS, VastCall
from vastrun.launcher.providers.vast.errors import Answer, UnknownRefusalError, fetch_log, map_error

TAKEN = "error 410/3907: no_such_ask Instance type 5 is no longer available."
MISSING = "error 404/3603: no_such_ask Instance type by id 5 is not available."
LOOK = calls.show_instance("7")
SLACK_S = 5.0
"""For a busy computer."""


def answer(status: int, body: dict[str, Any] | str, **headers: str) -> Answer:
    text = body if isinstance(body, str) else json.dumps(body)
    return Answer(status=status, text=text, headers={k.replace("_", "-"): v for k, v in headers.items()})


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (403, {"error": "auth_error", "msg": "This action requires login."}, errors.AuthError),
        (401, "Invalid user key", errors.AuthError),
        (401, {"msg": "Two-factor authentication required"}, errors.AuthError),
        (403, {"error": "permission_denied"}, errors.AuthError),
        (400, {"msg": MISSING}, errors.NoOfferError),
        (404, {"error": "invalid_args", "msg": MISSING}, errors.NoOfferError),
        (410, {"error": "no_such_ask", "msg": TAKEN}, errors.NoOfferError),
        (200, {"success": False, "error": "no_such_ask"}, errors.NoOfferError),
        (409, {"msg": "offer no longer available"}, errors.NoOfferError),
        (404, {"error": "no_such_instance"}, errors.GoneError),
        (429, "API requests too frequent: endpoint threshold=4.5", errors.BusyError),
        (502, "<html>Bad Gateway</html>", errors.UnreachableError),
        (408, "Request Timeout", errors.UnreachableError),
        (400, {"error": "insufficient_credit"}, errors.ProviderError),
        (400, {"error": "spend_rate_limit"}, errors.ProviderError),
        (400, {"error": "invalid_price"}, UnknownRefusalError),
        (404, "<html>not this page</html>", UnknownRefusalError),
        (
            403,
            {"error": "invalid_args", "msg": "error 403/3586: Offer 7 is not your own.", "ask_id": 7},
            errors.NoOfferError,
        ),
        (404, {"success": False, "msg": "Instance 7 not found"}, errors.GoneError),
        (404, {}, errors.GoneError),
        (404, {"detail": "lacks the api.instances route access"}, errors.AuthError),
    ],
)
def test_a_refusal_is_the_error_that_it_means(
    status: int, body: dict[str, Any] | str, expected: type[errors.VastrunError]
) -> None:
    assert type(map_error(answer(status, body), LOOK)) is expected


def test_a_404_about_anything_but_an_instance_says_nothing_about_one() -> None:
    assert type(map_error(answer(404, {"msg": "no such page"}), calls.ACCOUNT)) is UnknownRefusalError


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (LOOK, "the right instance_read for api.instances.show, with which vastrun would look at a machine"),
        (
            calls.create("7", {}),
            "instance_write for api.instances.show, with which vastrun would rent a machine",
        ),
    ],
)
def test_a_key_without_a_route_is_told_which_and_what_it_is_for(call: VastCall, text: str) -> None:
    error = map_error(answer(401, {"msg": "This key lacks the api.instances.show route access"}), call)
    assert type(error) is errors.AuthError
    assert text in str(error)


def test_a_refusal_without_a_reason_says_what_was_sent_and_what_came() -> None:
    call = calls.create("7", {"disk": 10, "image": "debian", "onstart": "x" * 100, "env": {"A": "b"}})
    text = str(map_error(answer(400, {"success": False}), call))
    sent = 'sent: PUT /api/v0/asks/7/ {"client_id": "me", "disk": 10, "image": "debian"}'
    assert text.endswith(f'without a reason; {sent}; received: {{"success": false}}')


def test_a_retry_may_help_against_a_timeout_and_the_faults_of_a_server_or_a_proxy() -> None:
    transient = {status for status in range(200, 600) if answer(status, "").transient}
    assert transient == {408, 500, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 527}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            {"error": "auth_error", "msg": "Invalid", "message": "user", "detail": "key"},
            "auth_error: Invalid: user: key",
        ),
        ({"error": None, "msg": "", "detail": "key"}, "key"),
        ({"success": False}, ""),
        ({"msg": "x" * 301}, "x" * 300),
        ("<html>\n  Bad  Gateway</html>", "<html> Bad Gateway</html>"),
        ("[1,\n2]", "[1, 2]"),
        ("x" * 301, "x" * 300),
    ],
)
def test_the_reason_is_all_that_vast_names_on_one_line_of_at_most_300_characters(
    body: dict[str, Any] | str, reason: str
) -> None:
    assert answer(400, body).reason == reason


@pytest.mark.parametrize(
    ("refusal", "seconds"),
    [
        (answer(429, "too frequent", Retry_After="7"), 7.0),
        (answer(429, {"retry_after": 3}), 3.0),
        (answer(429, "API requests too frequent"), None),
        (answer(429, "too frequent", Retry_After="soon"), None),
        (answer(429, "too frequent", Retry_After="-7"), 0.0),
        (answer(429, {"retry_after": "later"}), None),
        (answer(429, "[]"), None),
    ],
)
def test_how_long_to_wait_is_read_from_wherever_it_is_said(refusal: Answer, seconds: float | None) -> None:
    assert refusal.retry_after_s() == seconds


@pytest.mark.parametrize("code", ["insufficient_credit", "spend_rate_limit"])
def test_a_lack_of_money_says_what_to_do(code: str) -> None:
    assert map_error(answer(400, {"error": code}), LOOK).hint


SLOW_START = pytest.mark.parametrize("pace", [Pace(created_s=1.0)])
"""A slow computer, too, has read the row of what it rented before that fails."""


@SLOW_START
@pytest.mark.parametrize(
    ("fault", "cause"),
    [("daemon_log_image", Cause.USER_ERROR), ("daemon_log_host", None), ("daemon_log_noise", None)],
)
def test_the_log_tells_why_a_machine_does_not_start(
    vast: VastEmulator, provider: VastProvider, fault: str, cause: Cause | None
) -> None:
    vast.faults.add(fault)
    machine = rent(provider)
    assert isinstance(eventually_refused(provider, machine), errors.UnexplainedError)
    log = provider.host_log(machine.id, within_s=30.0)
    assert provider.cause_in(log) is cause
    assert len(log) <= 1 << 18


@SLOW_START
def test_a_log_that_is_never_ready_is_not_waited_for(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("daemon_log_late")
    machine = rent(provider)
    eventually_refused(provider, machine)
    began = time.monotonic()
    with pytest.raises(errors.UnreachableError, match="within 1 s"):
        provider.host_log(machine.id, within_s=1.0)
    assert time.monotonic() - began < 1.0 + SLACK_S


def test_an_api_that_hangs_is_not_waited_for() -> None:
    hangs = threading.Event()

    def request() -> dict[str, Any]:
        hangs.wait()
        return {}

    began = time.monotonic()
    with pytest.raises(errors.UnreachableError, match="no log"):
        fetch_log(request, 0.2)
    assert time.monotonic() - began < SLACK_S
    hangs.set()


@pytest.mark.parametrize(
    "answer",
    [{}, {"result_url": None}, {"result_url": 7}, {"result_url": "file:///etc/passwd"}, {"result_url": []}],
)
def test_an_answer_without_an_address_on_the_web_is_no_log(answer: dict[str, Any]) -> None:
    with pytest.raises(errors.UnreachableError, match="without its address"):
        fetch_log(lambda: answer, 10.0)


def test_no_more_is_read_of_a_log_than_is_of_use() -> None:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.answer(200, b"\xff" + b"x" * 3_000_000)

    with serving(Handler) as url:
        text = fetch_log(lambda: {"result_url": f"{url}/log"}, 30.0)
    assert len(text) == 1 << 18


def test_a_refusal_of_the_request_is_told() -> None:
    def refused() -> dict[str, Any]:
        raise errors.UnreachableError("Vast is down")

    with pytest.raises(errors.UnreachableError, match="Vast is down"):
        fetch_log(refused, 10.0)


def test_the_page_lists_the_rights_of_a_scoped_key_and_what_each_is_for() -> None:
    page = (Path(__file__).parents[4] / "docs" / "vast.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.M)) == {
        right: ", ".join(uses) for right, uses in RIGHTS.items()
    }
