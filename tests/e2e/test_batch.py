"""Batches by the installed command: on this computer, and on an emulated Vast whose launcher is killed."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.terminal import WITH_STUB_TORCH, Terminal
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually

JOB = """\
name: own
resources: {gpus: 0, disk_gb: 8}
ranks: 1
limits: {hours: 0.2, usd: 0.5}
env: {PYTHONPATH: %s}
command: python -c "import time; time.sleep({naps}); print('n is {n}'); raise SystemExit({fails})"
success: {log: "n is"}
"""
BATCH = """\
name: naps
job: job.yaml
list:
- {n: 1, naps: 2, fails: 0}
- {n: 2, naps: 2, fails: 0}
- {n: 3, naps: 2, fails: 3}
- {n: 4, naps: 2, fails: 0}
limits: {usd: 10, parallel: 2}
"""


def write(folder: Path) -> None:
    """The job and the batch."""
    (folder / "job.yaml").write_text(JOB % WITH_STUB_TORCH[1].rpartition("=")[2])
    (folder / "batch.yaml").write_text(BATCH)


def test_a_batch_on_this_computer_gives_each_program_its_values(terminal: Terminal) -> None:
    write(terminal.folder)
    done = terminal.type("batch", "submit", "batch.yaml")
    assert done.exit_code == 5, done.err
    results = terminal.type("batch", "results", "naps", "--json").json()
    verdicts = {point["values"]["n"]: point["verdict"] for point in results["points"]}
    assert verdicts == {1: "SUCCEEDED", 2: "SUCCEEDED", 3: "FAILED", 4: "SUCCEEDED"}
    for point in results["points"]:
        folder = Path(point["outputs"])
        assert folder.parent == terminal.folder / "batches" / "naps"
        assert f"n is {point['values']['n']}\n" in (folder / "log.txt").read_text()
    assert terminal.leftovers() == []


def test_a_launcher_of_a_batch_that_is_killed_is_followed_by_another_one(
    rented: Terminal, vast: VastEmulator
) -> None:
    write(rented.folder)
    first = rented.start("batch", "submit", "batch.yaml", "--provider", "vast", "-y")
    eventually(lambda: len(vast.instances) == 2 or first.process.poll() is not None, what="two machines")
    first.kill()
    assert "vastrun batch resume naps" in rented.type("batch", "status", "naps").out
    done = rented.type("batch", "resume", "naps", "--json")
    assert done.exit_code == 5, done.err
    verdicts = sorted(point["verdict"] for point in done.json()["points"])
    assert verdicts == ["FAILED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"]
    assert len(vast.billing.meters) == 4 and len(vast.instances) == 0
    assert rented.type("cost", "--json").json()["usd"] >= 0.998 * vast.billing.total_usd()
