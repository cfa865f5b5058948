"""Lies of a held machine about its slots. One table; a new field of what it prints has its row here."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.hostile.lie import STEERING


def _says(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda answer: answer.update(changes)


def _row(**changes: Any) -> Callable[[dict[str, Any]], object]:
    """It lists one more slot."""
    row = {
        "name": "evil-owl-0000.0000",
        "label": "vastrun-evil-owl-0000",
        "rented_at": 1.8e9,
        "units": 1,
        "is_armed": True,
    }
    return lambda answer: answer["slots"].append({**row, **changes})


def _rows(number: int) -> Callable[[dict[str, Any]], object]:
    def add(answer: dict[str, Any]) -> None:
        for each in range(number):
            _row(name=f"evil-owl-{each}.0000")(answer)

    return add


SLOT_LIES: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "more parts than the machine has": _row(units=64),
    "parts that are none": _row(units=0),
    "parts before the first": _row(units=-1),
    "parts beyond any number": _row(units=2**70),
    "parts that are text": _row(units="1"),
    "a name that leads out": _row(name="../../etc"),
    "a name that is hidden": _row(name=".orders"),
    "a name that is a command": _row(name="a; touch evil #.0000"),
    "a name that steers": _row(name=STEERING),
    "a name without an end": _row(name="x" * 1_000_000 + ".0000"),
    "a name that is a number": _row(name=3),
    "a label of somebody else": _row(label="production-database"),
    "a label that steers": _row(label=f"vastrun-{STEERING}"),
    "a label without an end": _row(label="vastrun-" + "x" * 1_000_000),
    "rented at no time": _row(rented_at=float("1e300")),
    "rented at a text": _row(rented_at="noon"),
    "armed in words": _row(is_armed="yes"),
    "one name twice": lambda answer: [_row(name="evil-owl-0000.0000")(answer) for _ in range(2)],
    "many slots": _rows(10_000),
    "slots that are text": _says(slots="none"),
    "ready in words": _says(is_ready="yes"),
    "drained by a list": _says(drained=["why"]),
    "refused by an object": _says(refused={"why": 1}),
    "faults without an end": _says(faults=["x"] * 100_000),
    "faults that are text": _says(faults=3),
}
"""What no honest machine says: it is refused, and the machine is to blame."""

SLOT_PRINTS: Mapping[str, str] = {
    "nothing": "",
    "no JSON": STEERING,
    "a list": "[]",
    "null": "null",
    "deep": "[" * 100_000,
    "many digits": f'{{"slots": {"9" * 6000}}}',
}
"""What it prints instead."""
