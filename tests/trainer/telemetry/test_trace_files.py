"""Trace files: a table and a compressed trace of what torch's profiler wrote."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vastrun.trainer.telemetry import trace_files
from vastrun.trainer.telemetry.trace_files import events_in, operations_table


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 7,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {"a": [1]},
    }


EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
    event("aten::linear", 100, 50),
    event("aten::mm", 110, 30),
    event("aten::mm", 300, 10, tid=2),
    event("step 50", 90, 400, "user_annotation"),
    event("forward", 95, 100, "user_annotation"),
    event("step 51", 500, 400, "user_annotation"),
    event("ampere_sgemm", 120, 2000, "kernel"),
]


def trace_of(events: list[dict[str, Any]]) -> str:
    """As Kineto writes it."""
    listed = ",".join(json.dumps(each, indent=2) for each in events)
    return f'{{\n "schemaVersion": 1,\n "traceEvents": [\n{listed}\n ],"traceName": "x" }}'


def row_of(table: str, name: str) -> list[str]:
    return next(line for line in table.splitlines() if line.startswith(f"{name} ")).split()[-4:]


@pytest.mark.parametrize("chunk", [7, 64, 1 << 20])
def test_events_are_read_one_by_one_whatever_is_read_at_once(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_files, "_CHUNK", chunk)
    assert list(events_in(io.StringIO(trace_of(EVENTS)))) == EVENTS


def test_a_trace_that_was_cut_off_gives_what_is_whole() -> None:
    text = trace_of(EVENTS)
    assert list(events_in(io.StringIO(text[: text.index("ampere")]))) == EVENTS[:-1]
    assert list(events_in(io.StringIO("no trace"))) == []


def test_the_time_of_an_operation_itself_is_without_those_that_it_called() -> None:
    table = operations_table(iter(EVENTS))
    assert row_of(table, "aten::linear") == ["0.5", "0.010", "33.3%", "0.025"]
    assert row_of(table, "aten::mm") == ["1.0", "0.020", "66.7%", "0.020"]


def test_all_steps_are_one_row_and_their_parts_are_rows_of_their_own() -> None:
    table = operations_table(iter(EVENTS))
    assert row_of(table, "step") == ["1.0", "0.350", "87.5%", "0.400"]
    assert row_of(table, "forward") == ["0.5", "0.050", "12.5%", "0.050"]
    assert row_of(table, "ampere_sgemm") == ["0.5", "1.000", "100.0%", "1.000"]


def test_a_table_without_a_gpu_has_no_kernels() -> None:
    assert "GPU" not in operations_table(iter(EVENTS[:-1]))


def test_the_process_writes_both_files_and_removes_the_raw_trace(tmp_path: Path) -> None:
    raw, trace, table = (tmp_path / name for name in ("raw", "trace.json.gz", "operations.txt"))
    raw.write_text(trace_of(EVENTS))
    command = [sys.executable, "-P", "-m", "vastrun.trainer.telemetry.trace_files", raw, trace, table]
    subprocess.run(command, check=True)
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"] == EVENTS
    assert "aten::mm" in table.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {trace.name, table.name}
