"""Ctrl-C in a notebook is an exception between any two lines: the ledger stays whole, and free for others."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from tests.runs import a_run
from vastrun.launcher.core import Event, Phase
from vastrun.launcher.ledger import database, sql, sqlite
from vastrun.launcher.ledger.sqlite import SqliteLedger

RUN = a_run()
FILES = (database.__file__, sql.__file__, sqlite.__file__, contextlib.__file__)


def interrupted(work: Callable[[], object], line: int) -> bool:
    """Do the work until so many lines of the ledger were reached; whether it came to that."""
    seen = 0

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename in FILES and event == "line":
            seen += 1
            if seen == line:
                raise KeyboardInterrupt
        return on_line

    before = sys.gettrace()
    sys.settrace(on_line)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_line_of_a_write_leaves_the_ledger_whole_and_free(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    here, elsewhere = (SqliteLedger(path, now=lambda: 0.0, alive=lambda _: True) for _ in range(2))
    line, was_interrupted = 0, True
    while was_interrupted:
        line += 1
        run = replace(RUN, id=f"run-{line}")
        was_interrupted = interrupted(lambda run=run: here.add(run), line)  # type: ignore[misc]
        for ledger in (elsewhere, here):
            other = replace(RUN, id=f"{run.id}-{id(ledger)}")
            ledger.add(other)
            ledger.add_event(Event(run_id=other.id, at=0.0, phase=Phase.PLAN, text="hello"))
        assert {run.id for run in elsewhere.runs()} == {run.id for run in here.runs()}
    assert line > 10
    assert here.get(f"run-{line}").id == elsewhere.get(f"run-{line}").id
