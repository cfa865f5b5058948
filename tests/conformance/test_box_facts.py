"""What a box says of itself: bounded, whatever it is."""

import json
import math
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.assumptions import ASSUMPTIONS
from tests.conformance.observed_vast import (
    ask_box,
    box_values,
    downloaded_bytes,
)
from vastrun.launcher.core import CommandResult
from vastrun.launcher.core.errors import BoxError

SHA256 = "ab" * 32
HONEST = {
    "onstart_sha256": SHA256,
    "container_id": True,
    "key": True,
    "session_key": False,
    "own_row": 200,
    "list": 403,
    "account": 403,
    "host_keys": ["SHA256:one"],
}
LIES: tuple[Any, ...] = (None, True, [], {}, 7, -1, 10**400, math.nan, "\x1b[2J" * 99, ["x"] * 10**4, [[]])


@dataclass
class Printing:
    """A remote that prints."""

    text: str

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        return CommandResult(exit_code=0, stdout=self.text, stderr="Traceback")


def values(told: dict[str, Any]) -> dict[str, Any]:
    return box_values(told, onstart_sha256=SHA256, log_keys=["SHA256:one"])


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
@pytest.mark.parametrize("key", HONEST)
def test_a_lie_is_a_word_of_the_table_or_nothing(key: str, lie: Any) -> None:
    for name, value in values({**HONEST, key: lie}).items():
        assert ASSUMPTIONS[name].assumed.read(value) == value


@pytest.mark.parametrize("text", ["", "no JSON", "[]", "null", "[" * 10_000, "x" * 10**6, "7"])
def test_a_box_that_says_no_object_is_to_blame(text: str) -> None:
    with pytest.raises(BoxError):
        ask_box(Printing(text), "7", "https://console.vast.ai")  # type: ignore[arg-type]


def test_what_an_image_prints_before_does_no_harm() -> None:
    printed = f"Welcome!\n{json.dumps(HONEST)}\n"
    assert ask_box(Printing(printed), "7", "https://console.vast.ai") == HONEST  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [*LIES, 1 << 60])
def test_a_download_of_a_size_that_is_none_is_none(size: Any) -> None:
    assert downloaded_bytes({"downloaded": size}) in (0, 7)
