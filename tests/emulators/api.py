"""The API: one table of routes, and what every request goes through."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.emulators import account_api, instances_api, offers_api, overlays_api, schedules_api
from tests.emulators.account import OURS, UNKNOWN_KEY
from tests.emulators.answers import ApiError, Reply, no_such_instance, refusal, reply, text_reply
from tests.emulators.behaviour import refused as refused_by
from tests.emulators.behaviour import worded
from tests.emulators.bending import bent
from tests.emulators.call import Call, Route
from tests.emulators.faults import REQUEST, Fault, Place
from tests.emulators.world import World

ROUTES: tuple[Route, ...] = (
    *offers_api.ROUTES,
    *instances_api.ROUTES,
    *account_api.ROUTES,
    *overlays_api.ROUTES,
    *schedules_api.ROUTES,
)
_RESULT = re.compile(r"/results/([0-9a-f]+)$")
_DOWNLOAD = re.compile(r"/download/(\d{1,9})$")
_RETRY_AFTER_S = 2
_TOO_MANY = "API requests too frequent"

_REFUSALS: Mapping[str, Reply] = {
    "too_many_requests": text_reply(_TOO_MANY, status=429),
    "too_many_requests_json": reply(
        {"success": False, "error": "too_many_requests", "msg": _TOO_MANY, "retry_after": _RETRY_AFTER_S},
        status=429,
    ),
    "too_many_requests_header": replace(
        text_reply(_TOO_MANY, status=429), headers={"Retry-After": str(_RETRY_AFTER_S)}
    ),
    "server_error": reply(
        {"success": False, "error": "internal", "msg": "Internal server error."}, status=500
    ),
    "bad_gateway": text_reply("<html><body>502 Bad Gateway</body></html>", status=502),
    "no_answer": Reply(cut=True),
    "invalid_key": refusal(404, "auth_error", "Invalid user key").reply,
    "two_factor": refusal(401, "auth_error", "Two-factor authentication is required.").reply,
    "not_json": Reply(body=b"<html><body>Be right back.</body></html>", content_type="text/html"),
    "null_answer": reply(None),
    "list_answer": reply([]),
    "text_answer": reply("Be right back."),
}
"""Nothing is done, and this is the answer."""
_DISTORTIONS: Mapping[str, Reply] = {
    "bad_gateway_done": _REFUSALS["bad_gateway"],
    "no_answer_done": Reply(cut=True),
}
"""It is done, but this is the answer."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What came over the wire. Header names are lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    address: str = "127.0.0.1"
    """Who asks."""


def answer(world: World, request: Request) -> Reply:
    """The reply to one request, whatever it is."""
    with world.lock:
        world.settle()
        try:
            return _answer(world, request)
        except ApiError as error:
            unknown = (
                error.reply.content_type == "application/json"
                and error.reply.content.get("msg") == UNKNOWN_KEY
            )
            return error.reply if not unknown else worded(error.reply, world.behaviour.word("key.bad"))
        finally:
            world.settle()


def _answer(world: World, request: Request) -> Reply:
    parts = urlsplit(request.target)
    result = _RESULT.match(parts.path)
    if result and request.method == "GET":
        return world.result(result[1])
    download = _DOWNLOAD.match(parts.path)
    if download and request.method == "GET":
        return world.download(int(download[1]))
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    token = _token(request, query)
    if not world.reaches(token):
        return Reply(cut=True)
    route, ids = _find(request.method, parts.path)
    fault = world.faults.first(REQUEST, Place(endpoint=route.name, instance_id=ids[0] if ids else None))
    if fault and fault.name in _REFUSALS:
        return _REFUSALS[fault.name]
    call = Call(ids=ids, query=query, body=_body(request.body), key=None, address=request.address)
    call = _admit(world, route, call, token)
    return _distorted(_carried_out(world, route, call), fault)


def _carried_out(world: World, route: Route, call: Call) -> Reply:
    """The handler's answer, or its refusal, as this Vast gives it."""
    try:
        done = route.handler(world, call)
    except ApiError as error:
        done = error.reply
    return bent(route.name, world, call, done)


def _find(method: str, path: str) -> tuple[Route, tuple[int, ...]]:
    """The route, with the numbers in its path. `/x` and `/x/` are the same."""
    words = path.rstrip("/").removeprefix("/api").split("/")
    pattern = "/".join("#" if word.isdigit() else word for word in words)
    for route in ROUTES:
        if route.method == method and route.path == pattern:
            return route, tuple(int(word) for word in words if word.isdigit())
    raise refusal(404, "not_found", f"{method} {path} is not known.")


def _token(request: Request, query: Mapping[str, str]) -> str | None:
    """The key as it was sent."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else query.get("api_key")


def _admit(world: World, route: Route, call: Call, token: str | None) -> Call:
    """The call with its key, if the key is known, allowed to do this, and not too fast."""
    if token is None and route.open:
        world.limits.check(route.name, "", call.address)
        return call
    key = world.account.identify(token)
    # Every box has an address of its own, though it stands on this computer.
    box = f"instance {key.instance_id}" if key.instance_id is not None else call.address
    world.limits.check(route.name, key.key, box)
    if key.user_id != OURS and call.ids:
        raise no_such_instance(call.id)
    if key.instance_id is not None and (told := _told(world, route.name, key.instance_id, call)):
        if not told.startswith("2"):
            raise ApiError(refused_by(f"{told} auth_error"))
        return replace(call, key=key)
    if not key.allows(route.name, route.category, call.ids[0] if call.ids else None):
        msg = f"This key does not have the permission {route.category} for this call."
        raise refusal(403, "auth_error", msg)
    return replace(call, key=key)


def _told(world: World, endpoint: str, instance_id: int, call: Call) -> str:
    """What the key of a box is answered there, where this Vast is told that; empty: as usual."""
    row = {"list_instances": "key.list", "show_user": "key.account"}.get(endpoint, "")
    if endpoint == "show_instance" and call.ids == (instance_id,):
        row = "key.own_row"
    return world.behaviour.word(row) if row and world.behaviour.is_told(row) else ""


def _distorted(done: Reply, fault: Fault | None) -> Reply:
    if fault is None:
        return done
    if fault.name == "slow_answer":
        return replace(done, hang_s=fault.seconds or 5.0)
    return _DISTORTIONS[fault.name]


def _body(raw: bytes) -> Mapping[str, Any]:
    if not raw:
        return {}
    try:
        content = json.loads(raw)
    except ValueError as error:
        raise refusal(400, "invalid_json", "The body is not JSON.") from error
    if not isinstance(content, dict):
        raise refusal(400, "invalid_json", "The body is not a JSON object.")
    return content
