"""A ledger, a run's folder and a box that an older vastrun left are read as their own."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from launcher.core import Phase
from launcher.gate.box_status import box_status_of
from launcher.ledger.sqlite import SqliteLedger
from launcher.shipped import onstart_dir
from tests.launcher.terminal import Terminal
from tests.waiting import LONGEST_S

BEFORE = Path(__file__).with_name("before")
RUN = "light-eagle-7dd6"


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """Where that run lies in the ledger, its outputs in `out`."""
    shutil.copytree(BEFORE / "out", tmp_path / "out")
    path = tmp_path / "ledger.db"
    with sqlite3.connect(path) as db:
        db.executescript((BEFORE / "ledger.sql").read_text().replace("/home/ada/out", str(tmp_path / "out")))
    db.close()
    terminal = Terminal(tmp_path)
    terminal.ledger = SqliteLedger(path, now=terminal.clock.now, alive=lambda _: False)
    return terminal


def test_its_ledger_lists_the_run_with_its_events(terminal: Terminal) -> None:
    document = terminal.document("status", RUN)
    assert (document["run"]["verdict"], document["run"]["wish"]) == ("SUCCEEDED", "none")
    assert [event["phase"] for event in document["events"]][-1] == "destroy"
    assert "before" in terminal.type("status").stdout


def test_its_ledger_is_added_up_with_what_it_does_not_know_left_out(terminal: Terminal) -> None:
    (group,) = terminal.document("cost", "--by", "tag")["groups"]
    assert (group["key"], group["runs"], group["finished"]) == ("-", 1, 1)


def test_its_ledger_takes_new_runs(terminal: Terminal) -> None:
    end = terminal.launch("--out", str(terminal.folder / "new"))
    assert end.exit_code == 0, end.stderr
    assert [run.phase for run in terminal.ledger.runs()] == [Phase.ENDED, Phase.ENDED]


def test_its_evidence_is_told(terminal: Terminal) -> None:
    told = terminal.type("why", RUN).stdout
    assert "signal: rank 0 was killed by SIGSEGV at step 3 (forward)" in told
    outcome = terminal.document("why", RUN)["outcome"]
    failure = outcome["starts"][0]["first_failure"]
    assert (failure["signal"], failure["activity"]) == ("SIGSEGV", "forward")


def test_programs_that_know_the_keys_of_before_find_them(terminal: Terminal) -> None:
    outcome = terminal.document("why", RUN)["outcome"]
    assert outcome["attempts"] == outcome["starts"]
    assert outcome["ranks"][0]["phase"] == outcome["ranks"][0]["activity"] == "forward"


def test_its_box_says_what_its_ranks_do(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(BEFORE / "out/details/status.json", tmp_path / "run/status.json")
    printed = subprocess.run(
        ["bash", str(onstart_dir() / "status.sh")],
        env={**os.environ, "VASTRUN_BOX": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=LONGEST_S,
    ).stdout
    assert json.loads(printed)["supervisor"]["ranks"][0]["phase"] == "forward"
    assert {rank.activity for rank in box_status_of(printed).ranks} == {"forward"}
