"""What the API answers with: a JSON reply, or an error in one of Vast's shapes."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One HTTP answer. `hang_s` and `cut` are how a network misbehaves."""

    status: int = 200
    body: bytes = b"{}"
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    hang_s: float = 0.0
    """The answer comes this much later."""
    cut: bool = False
    """The connection closes without an answer."""

    @property
    def content(self) -> Any:
        """The JSON in the body."""
        return json.loads(self.body)


def reply(content: Any, *, status: int = 200) -> Reply:
    """The content as JSON."""
    return Reply(status=status, body=json.dumps(content).encode())


def text_reply(text: str, *, status: int = 200) -> Reply:
    """Plain text, as gateways and result files answer."""
    return Reply(status=status, body=text.encode(), content_type="text/plain; charset=utf-8")


class ApiError(Exception):
    """Ends a request with an error answer."""

    def __init__(self, answer: Reply) -> None:
        super().__init__(f"{answer.status}: {answer.body.decode(errors='replace')}")
        self.reply = answer


def refusal(status: int, error: str, msg: str, **more: Any) -> ApiError:
    """The common shape: `success`, `error`, `msg`."""
    return ApiError(reply({"success": False, "error": error, "msg": msg, **more}, status=status))


def no_such_ask(status: int, number: int, ask_id: int) -> ApiError:
    """The offer is not there (404, 400) or not there any more (410)."""
    if status == 410:
        return refusal(
            410,
            "no_such_ask",
            f"error 410/{number}: no_such_ask Instance type {ask_id} is no longer available.",
        )
    msg = f"error {status}/{number}: no_such_ask Instance type by id {ask_id} is not available."
    return refusal(status, "invalid_args", msg, ask_id=ask_id)


def no_such_instance(instance_id: int) -> ApiError:
    """No instance of ours goes by that id."""
    return refusal(404, "no_such_instance", f"Instance {instance_id} not found.")
