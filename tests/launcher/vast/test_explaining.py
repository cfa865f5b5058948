"""`plan --explain` on Vast, from the ledger of somebody who has trained there before."""

from __future__ import annotations

import time
from pathlib import Path

from launcher.config import dump_job, load_job
from launcher.ledger import SqliteLedger
from launcher.model import Phase, Run
from tests.e2e.terminal import Terminal
from tests.emulators.vast import VastEmulator
from tests.launcher.vast.trying import open_market

JOB = """\
name: demo
resources: {gpus: 1, gpu_names: [RTX 4090]}
limits: {hours: 2, usd: 3}
train: {steps: 7200, batch: 8}
"""


def trained_before(terminal: Terminal, vast: VastEmulator) -> None:
    """One run of the job, at two steps a second."""
    spec = load_job(JOB, "job.yaml")
    ledger = SqliteLedger(terminal.state / "vastrun" / "ledger.db", now=time.time, alive=lambda _: False)
    run = Run(
        id="calm-heron-3f1a",
        job=spec.name,
        spec_json=dump_job(spec),
        provider="vast",
        phase=Phase.ENDED,
        out_dir="/o",
        created_at=time.time(),
        phase_at=time.time(),
        offer=open_market(vast, terminal.folder / "other").search(spec)[0],
        steps_per_s=2.0,
    )
    ledger.add(run)
    ledger.close()


def test_the_speed_of_an_earlier_run_of_the_job_is_what_the_next_is_planned_by(
    vast: VastEmulator, tmp_path: Path
) -> None:
    terminal = Terminal(tmp_path, **vast.variables)
    (tmp_path / "job.yaml").write_text(JOB)
    explain = ("plan", "job.yaml", "--explain", "--provider", "vast")
    assert " h at dlperf " in terminal.type(*explain).out
    trained_before(terminal, vast)
    assert "1.0 h at 2 steps/s, learned from 1 run" in terminal.type(*explain).out
