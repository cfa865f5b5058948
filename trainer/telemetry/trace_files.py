"""Trace files: compress a trace of `torch.profiler`, and write a table of its operations next to it.

`python -m vastrun.trainer.telemetry.trace_files RAW TRACE OPERATIONS`, a process with the lowest priority:
torch's own table (`key_averages`) takes 0.4 s of Python for each step of a small model, in which the training
would wait for Python's lock. Standard library only.
"""

import gzip
import json
import os
import re
import shutil
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

_CHUNK = 1 << 20
_FIRST_EVENT = '"traceEvents": ['
_BETWEEN = re.compile(r"[\s,]*")
_ROWS = 30
_NAME_WIDTH = 64
_STEP = re.compile(r"step \d+")
_GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_LEVEL = 6
"""Compression level of gzip: 7 % of the size; a higher one takes three times as long for 1 % less."""


_Calls = dict[tuple[Any, Any], list[tuple[float, float, str]]]
"""Calls by process and thread: start and duration in microseconds, and name."""


def main() -> int:
    """Write both files and remove the raw trace; return 0. Raises OSError, ValueError."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the parent, a rank, has it blocked
    os.nice(19)
    raw, trace, operations = map(Path, sys.argv[1:4])
    try:
        with raw.open(encoding="utf-8", errors="replace") as file:
            text = operations_table(events_in(file))
        _write(operations, lambda part: part.write_text(text, encoding="utf-8"))
        _write(trace, lambda part: _compress(raw, part))
    finally:
        raw.unlink()
    return 0


def events_in(trace: TextIO) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace one by one: a trace may be larger than memory."""
    decoder, text = json.JSONDecoder(), ""
    while _FIRST_EVENT not in text:
        more = trace.read(_CHUNK)
        if not more:
            return
        text += more
    at = text.index(_FIRST_EVENT) + len(_FIRST_EVENT)
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it also matches nothing
        if text.startswith("]", at):
            return
        try:
            event, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:  # the rest of the event is not read yet
            more = trace.read(_CHUNK)
            if not more:
                return
            text, at = text[at:] + more, 0
        else:
            yield event


@dataclass
class _Row:
    calls: int = 0
    total_us: float = 0.0
    self_us: float = 0.0


def operations_table(events: Iterator[dict[str, Any]]) -> str:
    """Return the parts of a step, the CPU operations and the GPU kernels, the most expensive ones first."""
    kernels: dict[str, _Row] = defaultdict(_Row)
    calls: dict[str, _Calls] = {"user_annotation": defaultdict(list), "cpu_op": defaultdict(list)}
    steps = 0
    for event in events:
        if event.get("ph") != "X":
            continue
        kind, name, duration = event.get("cat"), str(event.get("name")), float(event.get("dur", 0.0))
        if kind in _GPU_WORK:
            _add(kernels[name], duration)
        elif kind in calls:
            if kind == "user_annotation" and _STEP.fullmatch(name):
                steps, name = steps + 1, "step"
            thread = event.get("pid"), event.get("tid")
            calls[kind][thread].append((float(event["ts"]), duration, sys.intern(name)))
    steps = max(1, steps)
    text = _table("Parts of a step", _rows_of(calls["user_annotation"]), steps)
    text += _table("CPU operations", _rows_of(calls["cpu_op"]), steps)
    return text + (_table("GPU kernels and copies", kernels, steps) if kernels else "")


def _add(row: _Row, duration_us: float) -> None:
    row.calls += 1
    row.total_us += duration_us
    row.self_us += duration_us


def _rows_of(calls: _Calls) -> dict[str, _Row]:
    """Sum calls by name. The self time of a call excludes the calls within it."""
    rows: dict[str, _Row] = defaultdict(_Row)
    for of_thread in calls.values():
        enclosing: list[tuple[float, _Row]] = []
        for begin, duration, name in sorted(of_thread, key=lambda call: (call[0], -call[1])):
            while enclosing and enclosing[-1][0] <= begin:
                enclosing.pop()
            if enclosing:
                enclosing[-1][1].self_us -= duration
            _add(rows[name], duration)
            enclosing.append((begin + duration, rows[name]))
    return rows


def _table(title: str, rows: Mapping[str, _Row], steps: int) -> str:
    whole_us = sum(row.self_us for row in rows.values()) or 1.0
    ordered = sorted(rows.items(), key=lambda item: -item[1].self_us)
    columns = f"{'calls/step':>10}  {'self ms/step':>12}  {'self':>6}  {'total ms/step':>13}"
    head = f"{title:<{_NAME_WIDTH}}  {columns}"
    lines = [head, "-" * len(head)]
    for name, row in ordered[:_ROWS]:
        short = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 3]}..."
        lines.append(
            f"{short:<{_NAME_WIDTH}}  {row.calls / steps:>10.1f}  {row.self_us / steps / 1e3:>12.3f}  "
            f"{row.self_us / whole_us:>6.1%}  {row.total_us / steps / 1e3:>13.3f}"
        )
    if len(ordered) > _ROWS:
        lines.append(f"and {len(ordered) - _ROWS} more")
    return "\n".join(lines) + "\n\n"


def _compress(raw: Path, target: Path) -> None:
    with raw.open("rb") as source, gzip.open(target, "wb", compresslevel=_LEVEL) as compressed:
        shutil.copyfileobj(source, compressed, _CHUNK)


def _write(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file, then rename it: a reader never sees a part of it."""
    part = path.with_name(f".{path.name}.part")
    try:
        write(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
