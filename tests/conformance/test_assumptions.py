"""The table of assumptions: whole, honest about what deviates, safe against what a service or a file says."""

import math
from typing import Any

import pytest

from tests.conformance import assumptions
from tests.conformance.examined import DEVIATIONS
from tests.conformance.observations import seen_in
from tests.conformance.recorder import ApiRecorder, Exchange

MACHINE = "52607650"
NONSENSE: tuple[Any, ...] = (
    None,
    [],
    {},
    "\x1b[2J",
    10**400,
    math.nan,
    {"instances": [None, 7, {"id": 52607650}]},
    {"instances": {"id": [], "label": {}, "start_date": "now", "actual_status": 7, "dph_total": "1e400"}},
    {"instances": {"id": MACHINE, "start_date": 10**400, "dph_total": 10**400, "actual_status": "running"}},
    {"instances": {"id": MACHINE, "start_date": math.nan, "dph_total": math.inf}, "total_instances": 10**400},
    {"instances": [{"id": MACHINE}], "total_instances": 10**400, "next_token": {}},
    {"offers": [{"id": 1, "gpu_ram": 10**400, "dph_total": 10**400}, {"end_date": -(10**400)}]},
    {"offers": [None, {"id": MACHINE, "gpu_ram": "much", "dph_total": {}, "reliability": math.nan}]},
    {"results": [None, {"source": f"instance-{MACHINE}", "items": [None, {"type": []}], "amount": "x"}]},
    {"success": 1, "new_contract": 52607650, "error": {"a": 1}, "msg": None, "total_instances": "many"},
    {"error": "\x1b]0;owned\x07" + "x" * 10**5},
)
PATHS = (
    ("POST", "/api/v0/bundles"),
    ("PUT", "/api/v0/asks/1"),
    ("GET", f"/api/v0/instances/{MACHINE}"),
    ("GET", "/api/v1/instances"),
    ("DELETE", f"/api/v0/instances/{MACHINE}"),
    ("GET", "/api/v0/charges"),
)


def exchange(method: str, path: str, content: Any, *, status: int = 200, **more: Any) -> Exchange:
    times = {"asked_at": 10.0, "answered_at": 10.5} | more
    return Exchange(method=method, path=path, status=status, content=content, **times)


@pytest.mark.parametrize("name", assumptions.ASSUMPTIONS)
def test_every_row_says_what_it_is_and_what_the_emulator_does_agrees(name: str) -> None:
    row = assumptions.ASSUMPTIONS[name]
    assert all((row.text, row.how, row.rests, str(row.assumed)))
    assert assumptions.compare(name, row.assumed.usual).state is assumptions.State.AGREES
    assert row.assumed.read(row.assumed.usual) == row.assumed.usual


@pytest.mark.parametrize("name", assumptions.ASSUMPTIONS)
def test_what_was_not_seen_is_said_to_be_so_and_what_deviates_too(name: str) -> None:
    assert assumptions.compare(name, seen_in(ApiRecorder()).get(name)).state is assumptions.State.NOT_SEEN
    deviating = assumptions.compare(name, DEVIATIONS[name].value)
    # How long the emulator itself takes is in seconds of this computer's.
    assert deviating.state is (
        assumptions.State.AGREES if name == "create.seconds" else assumptions.State.DEVIATES
    )
    assert deviating.seen_text


@pytest.mark.parametrize("content", NONSENSE, ids=range(len(NONSENSE)))
def test_no_answer_of_a_service_breaks_a_look(content: Any) -> None:
    recorder = ApiRecorder()
    recorder.begin(MACHINE, 10.0)
    recorder.rented_at = 10.0
    for method, path in PATHS:
        recorder.exchanges.append(exchange(method, path, content, date="yesterday"))
        recorder.exchanges.append(exchange(method, path, content, status=0))
    for name, seen in seen_in(recorder).items():
        row = assumptions.ASSUMPTIONS[name]
        assert row.assumed.read(seen) == pytest.approx(seen, nan_ok=True), name
        assert assumptions.compare(name, seen).seen_text.isprintable(), name


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (assumptions.Words("a"), 7),
        (assumptions.Words("a"), ""),
        (assumptions.Words("a"), "x" * 1000),
        (assumptions.Words("a"), "\x1b[2J"),
        (assumptions.Within(0, 1, "s"), True),
        (assumptions.Within(0, 1, "s"), "1"),
        (assumptions.Within(0, 1, "s"), math.nan),
        (assumptions.Within(0, 1, "s"), 1e300),
        (assumptions.Within(0, 1, "s"), 10**400),
        (assumptions.Fields({"a": "text"}), []),
        (assumptions.Fields({"a": "text"}), {"a": 7}),
        (assumptions.Fields({"a": "text"}), {str(n): "text" for n in range(1000)}),
    ],
)
def test_a_file_cannot_say_what_no_run_writes(
    kind: assumptions.Words | assumptions.Within | assumptions.Fields, raw: Any
) -> None:
    with pytest.raises(ValueError, match="expected"):
        kind.read(raw)


def test_a_machine_that_is_never_listed_counts_until_the_last_look_before_its_end() -> None:
    recorder = ApiRecorder()
    recorder.begin(MACHINE, 10.0)
    recorder.rented_at = 10.0
    for at in (11.0, 50.0, 95.0):
        recorder.exchanges.append(
            exchange("GET", "/api/v1/instances", {"instances": []}, asked_at=at, answered_at=at)
        )
    assert seen_in(recorder).get("new.in_list") == 85.0


def test_a_cut_line_says_nothing_of_how_soon_a_machine_is_shown() -> None:
    recorder = ApiRecorder()
    recorder.begin(MACHINE, 10.0)
    recorder.rented_at = 10.0
    path = f"/api/v0/instances/{MACHINE}"
    recorder.exchanges.append(exchange("GET", path, None, status=0, asked_at=11.0))
    recorder.exchanges.append(
        exchange("GET", path, {"instances": {"id": 52607650}}, asked_at=30.0, answered_at=30.0)
    )
    assert seen_in(recorder).get("new.by_id") is None
