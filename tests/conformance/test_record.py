"""The file of what was seen: it comes back as it was written, and nothing else is taken for one."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.recorder import Record, read_record, write_record
from vastrun.launcher.core import Cost
from vastrun.launcher.core.errors import UsageError

RECORD = Record(
    began_at=1.8e9,
    ended_at=1.8e9 + 300,
    run="calm-heron-3f1a",
    instance="52607650",
    machine="1 x RTX 4090 25 GB",
    verdict="SUCCEEDED",
    counted=Cost(gpu_usd=0.03, storage_usd=0.01, traffic_usd=0.002),
    run_usd=0.042,
    seen={"key.bad": "404 auth_error", "new.by_id": 0.2, "offer.units": {"gpu_ram": "MB"}},
)


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
        ({"instance": 7}, "instance"),
        ({"ended_at": "soon"}, "ended_at"),
        ({"run_usd": 1e300}, "run_usd"),
        ({"counted": {"gpu_usd": "much"}}, "gpu_usd"),
        ({"seen": []}, "seen"),
        ({"seen": {"key.bad": 7}}, "key.bad"),
    ],
)
def test_file_that_is_none_is_refused_by_its_key(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
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
