"""The timeline: what rows showed at each change, without addresses, whatever a service answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.providers.vast.conformance.recorder import ApiRecorder, Exchange
from launcher.providers.vast.conformance.timeline import MAX_SAMPLES, timeline
from tests.launcher.providers.vast.conformance.test_assumptions import NONSENSE

MACHINE = "52607650"
LOADING = {"id": 52607650, "actual_status": "loading", "label": "vastrun-secret", "dph_base": 0.2}


def recorder_of(*answers: Any, by_id: bool = True) -> ApiRecorder:
    recorder = ApiRecorder()
    recorder.begin(MACHINE, 10.0)
    path = f"/api/v0/instances/{MACHINE}" if by_id else "/api/v1/instances"
    for number, content in enumerate(answers):
        times = {"asked_at": 10.0 + number, "answered_at": 10.5 + number}
        recorder.record(Exchange(method="GET", path=path, status=200, content=content, is_json=True, **times))
    return recorder


def test_a_row_is_kept_whenever_it_changes() -> None:
    running = {**LOADING, "actual_status": "running"}
    shown = timeline(recorder_of(*({"instances": row} for row in (LOADING, LOADING, running, running))))
    assert [(one["of"], one["by"], one["actual_status"]) for one in shown] == [
        ("run", "id", "loading"),
        ("run", "id", "running"),
    ]


@pytest.mark.parametrize("rows", [[LOADING], {"0": LOADING}, [[LOADING]], [None, 7, LOADING]])
def test_rows_in_any_shape_are_read(rows: Any) -> None:
    assert len(timeline(recorder_of({"instances": rows}, by_id=False))) == 1


def test_no_address_and_no_label_is_kept() -> None:
    said = "Error: dial tcp 203.0.113.7:443, [2001:db8:0:1::7]: refused"
    row = {**LOADING, "status_msg": said, "public_ipaddr": "203.0.113.7", "ssh_host": "ssh5.vast.ai"}
    text = json.dumps(timeline(recorder_of({"instances": row})))
    assert "refused" in text
    assert not any(word in text for word in ("203.0.113.7", "2001:db8", "ssh5", "secret"))


@pytest.mark.parametrize("content", NONSENSE, ids=range(len(NONSENSE)))
def test_no_answer_of_a_service_breaks_it(content: Any) -> None:
    for by_id in (True, False):
        for sample in timeline(recorder_of(content, by_id=by_id)):
            assert json.dumps(sample).isprintable()


def test_a_service_that_never_stands_still_does_not_fill_the_file() -> None:
    rows = [{"instances": {**LOADING, "dph_base": float(n)}} for n in range(2 * MAX_SAMPLES)]
    assert len(timeline(recorder_of(*rows))) == MAX_SAMPLES
