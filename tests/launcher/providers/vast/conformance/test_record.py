"""The file of what was seen: it comes back as it was written, and nothing else is taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.providers.vast.conformance.test_assumptions import NONSENSE
from vastrun.launcher.core import Cost
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.providers.vast.conformance.record import (
    MAX_SAMPLES,
    Record,
    read_record,
    timeline,
    write_record,
)
from vastrun.launcher.providers.vast.conformance.recorder import ApiRecorder, Exchange

RECORD = Record(
    began_at=1.8e9,
    ended_at=1.8e9 + 300,
    run="calm-heron-3f1a",
    instance="52607650",
    machine="1 x RTX 4090 25 GB",
    verdict="SUCCEEDED",
    counted=Cost(gpu_usd=0.03, storage_usd=0.01, traffic_usd=0.002),
    run_usd=0.042,
    trials={"52607651": "digest"},
    trials_billed_usd=0.001,
    key_modes={"before": "~ 0 700", "after": "~ 0 700"},
    timeline=({"after_s": 0.5, "of": "digest", "by": "id", "actual_status": "loading", "dph_base": 0.2},),
    seen={"key.bad": "404 auth_error", "new.by_id": 0.2, "offer.units": {"gpu_ram": "MB"}},
)
MACHINE = "52607650"
LOADING = {"id": 52607650, "actual_status": "loading", "label": "vastrun-secret", "dph_base": 0.2}


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_record(tmp_path / "seen.json", RECORD)
    assert read_record(tmp_path / "seen.json") == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["seen.json"]


def test_a_row_of_another_version_is_left_out(tmp_path: Path) -> None:
    write_record(tmp_path / "seen.json", Record(began_at=0, ended_at=0, seen={"of another version": "x"}))
    assert read_record(tmp_path / "seen.json").seen == {}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kind": "something else"}, "kind"),
        ({"schema_version": 99}, "schema_version"),
        ({"run": "\x1b[2J"}, "run"),
        ({"run": "x" * 1000}, "run"),
        ({"instance": 7}, "instance"),
        ({"ended_at": "soon"}, "ended_at"),
        ({"ended_at": True}, "ended_at"),
        ({"run_usd": 1e300}, "run_usd"),
        ({"exit_code": None}, "exit_code"),
        ({"counted": []}, "counted"),
        ({"counted": {"gpu_usd": 1}}, "storage_usd"),
        ({"billed_usd": "much"}, "billed_usd"),
        ({"seen": []}, "seen"),
        ({"timeline": {}}, "timeline"),
        ({"timeline": [[]] * 1000}, "timeline"),
        ({"timeline": [{"by": "\x1b[2J"}]}, "by"),
        ({"timeline": [{"dph_base": True}]}, "dph_base"),
        ({"trials": []}, "expected an object"),
        ({"key_modes": {"before": 1e300}}, "before"),
        ({"trials_billed_usd": "much"}, "trials_billed_usd"),
        ({"seen": {"key.bad": 7}}, "key.bad"),
        ({"seen": {"new.by_id": "fast"}}, "new.by_id"),
        ({"seen": {"offer.units": ["MB"]}}, "offer.units"),
    ],
)
def test_a_file_that_is_none_is_refused_by_its_key(
    changes: dict[str, Any], named: str, tmp_path: Path
) -> None:
    file = tmp_path / "seen.json"
    write_record(file, RECORD)
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(UsageError, match=named) as caught:
        read_record(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff\xfe", b"[" * 100_000, b" " * (2 << 20), b'{"kind": NaN}']
)
def test_what_is_no_json_of_ours_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "seen.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"seen\.json"):
        read_record(file)


def test_a_file_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_record(tmp_path / "nowhere.json")


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
