"""Batches by the installed command: on this computer, and on an emulated Vast whose launcher is killed."""

import re
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.terminal import WITH_STUB_TORCH, Terminal
from tests.emulators.vast import VastEmulator
from tests.waiting import eventually
from vastrun.launcher.core import Phase
from vastrun.launcher.ledger.sqlite import SqliteLedger

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_sweep_with_reuse_holds_this_computer_for_its_points(terminal: Terminal) -> None:
    write(terminal.folder)
    line = ("sweep", "job.yaml", "n=1,2,3", "naps=0", "fails=0", "--parallel", "1", "--reuse", "auto")
    assert "1 machine held: one point at a time, 3 rounds" in terminal.type(*line, "--dry-run").out
    done = terminal.type(*line)
    assert done.exit_code == 0, done.err
    assert done.out.count("SUCCEEDED") == 3
    runs = terminal.type("status", "--json").json()["runs"]
    assert [run["provider"] for run in runs].count("pool") == 3 and len(runs) == 4
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_another_launcher_follows_a_killed_one_of_a_batch(rented: Terminal, vast: VastEmulator) -> None:
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


HELD = """\
name: held
job: job.yaml
grid: {n: [1, 2, 3, 4], naps: [1], fails: [0]}
limits: {usd: 10, parallel: 2}
reuse: auto
"""


@pytest.mark.slow
def test_a_batch_that_reuses_machines_rents_two_and_leaves_none(rented: Terminal, vast: VastEmulator) -> None:
    write(rented.folder)
    (rented.folder / "held.yaml").write_text(HELD)
    plan = rented.type("batch", "submit", "held.yaml", "--provider", "vast", "--dry-run", "--json").json()
    assert (plan["fleet"]["machines"], plan["fleet"]["points_in_turn"]) == (2, 2)
    assert len(vast.billing.meters) == 0

    done = rented.type("batch", "submit", "held.yaml", "--provider", "vast", "-y", "--json")
    assert done.exit_code == 0, done.err
    assert [point["verdict"] for point in done.json()["points"]] == ["SUCCEEDED"] * 4
    assert len(vast.billing.meters) <= 2 and len(vast.instances) == 0, done.err
    status = rented.type("batch", "status", "held", "--json").json()
    assert status["machines"] == 0 and 0 < status["idle_usd"] <= status["usd"]
    cost = rented.type("cost", "--by", "batch", "--json").json()
    assert cost["total"]["usd"] >= 0.998 * vast.billing.total_usd()
    assert cost["total"]["usd"] <= 1.2 * vast.billing.total_usd() + 0.01
    assert status["usd"] == pytest.approx(cost["total"]["usd"])


@pytest.mark.slow
def test_a_killed_launchers_machines_are_used_or_ended_next(rented: Terminal, vast: VastEmulator) -> None:
    write(rented.folder)
    (rented.folder / "held.yaml").write_text(HELD)
    first = rented.start("batch", "submit", "held.yaml", "--provider", "vast", "-y")
    file = rented.state / "vastrun" / "ledger.db"

    def is_on_a_slot() -> bool:
        assert first.process.poll() is None, "the batch was over before it was killed"
        # Not by the command, which would take a core of its own from the boxes.
        with closing(SqliteLedger(file, now=time.time, alive=lambda _: False)) as ledger:
            return any(run.provider == "pool" and run.phase is Phase.ENDED for run in ledger.runs())

    eventually(is_on_a_slot, what="a point that has ended on a slot")
    first.kill()
    done = rented.type("batch", "resume", "held", "--json")
    assert done.exit_code == 0, done.err
    assert [point["verdict"] for point in done.json()["points"]] == ["SUCCEEDED"] * 4
    assert len(vast.billing.meters) <= 3 and len(vast.instances) == 0, done.err


CONTINUES = """\
import os, sys, zipfile
from pathlib import Path

resume = os.environ["VASTRUN_RESUME"]
step = int(zipfile.ZipFile(resume).read("step")) if resume else 0
print("point", sys.argv[1], "continues after step", step, flush=True)
Path("own").mkdir(exist_ok=True)
for number in range(step + 10, 41, 10):
    with zipfile.ZipFile(f"own/step_{number}.pt", "w") as file:  # as torch.save does
        file.writestr("step", str(number))
    if sys.argv[1] == "1" and number == 20 and not resume:
        Path("own/step_30.pt").write_bytes(b"PK\\x03\\x04 half")
        sys.exit(3)
print("all is well", flush=True)
"""
CONTINUES_JOB = """\
name: continues
resources: {gpus: 0, disk_gb: 8}
ranks: 1
limits: {hours: 0.2, usd: 0.5}
env: {PYTHONPATH: %s}
code: {path: code}
command: python train.py {n}
checkpoints: own/*
success: {log: all is well}
"""


@pytest.mark.slow
def test_a_failed_point_that_is_tried_again_continues_from_its_own_newest_checkpoint(
    rented: Terminal, vast: VastEmulator
) -> None:
    (rented.folder / "code").mkdir()
    (rented.folder / "code" / "train.py").write_text(CONTINUES)
    (rented.folder / "job.yaml").write_text(CONTINUES_JOB % WITH_STUB_TORCH[1].rpartition("=")[2])
    (rented.folder / "batch.yaml").write_text(
        "name: own\njob: job.yaml\ngrid: {n: [1, 2]}\nlimits: {usd: 10, parallel: 2}\n"
    )
    assert rented.type("batch", "submit", "batch.yaml", "--provider", "vast", "-y").exit_code == 5
    done = rented.type("batch", "retry", "own", "--json")

    assert done.exit_code == 0, done.err
    assert [point["verdict"] for point in done.json()["points"]] == ["SUCCEEDED"] * 2
    logs = [path.read_text() for path in (rented.folder / "batches" / "own").glob("*/log.txt")]
    starts = sorted(re.findall(r"rank0 (point \d continues after step \d+)", "".join(logs)))
    assert starts == [
        *("point 1 continues after step 0", "point 1 continues after step 20"),
        "point 2 continues after step 0",
    ]
    assert len(vast.billing.meters) == 3 and len(vast.instances) == 0
