"""W&B runs of a user's program: what W&B shows is how the program ended, whoever told it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.supervision.launches import Launched, Launcher
from tests.trainer.telemetry.wandb_server import WandbServer
from vastrun.contract import layout
from vastrun.onstart.supervision.wandb_runs import runs_since

pytestmark = pytest.mark.slow

RUN = "calm-heron-3f1a"
BEGINS = """
import os, signal, wandb
start = int(os.environ["VASTRUN_RESTART"])
run = wandb.init(project="own")
run.log({"loss": 1.0 + start})
"""
Start = Callable[..., Launched]


@pytest.fixture
def start(launch: Launcher, tmp_path: Path, wandb: WandbServer) -> Start:
    def start(program: str, *, env: dict[str, str] | None = None, **job: Any) -> Launched:
        variables = {**wandb.environment, "WANDB_DIR": str(tmp_path / "box-0" / layout.RUN)} | (env or {})
        job = {"ranks": 1, "start_s": 200, "stall_s": 200, "env": variables, **job}
        return launch(BEGINS + program, beating=False, **job)

    return start


KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    ("program", "env", "mode", "run_id", "state"),
    [
        (KILLED, {}, "online", RUN, "failed"),
        (KILLED, {"WANDB_RUN_ID": "mine"}, "online", "mine", "failed"),
        (KILLED, {"WANDB_MODE": "offline"}, "offline", RUN, "crashed"),
        ("os._exit(0)", {}, "online", RUN, "finished"),
        ("os._exit(3)", {}, "online", RUN, "failed"),
        ("run.finish()", {}, "online", RUN, "finished"),
        ("raise ValueError", {}, "online", RUN, "failed"),
    ],
)
def test_wandb_shows_the_programs_end_unless_its_run_is_offline(
    program: str, env: dict[str, str], mode: str, run_id: str, state: str, start: Start, wandb: WandbServer
) -> None:
    run = start(program, env=env)
    outcome = run.outcome()
    on_server = {name: each.state for name, each in wandb.runs.items()}
    assert on_server == ({run_id: state} if mode == "online" else {}), run.log()
    assert outcome.wandb is not None
    assert (outcome.wandb.id, outcome.wandb.mode, outcome.wandb.state) == (run_id, mode, state)
    assert json.loads((run.box / layout.WANDB).read_text())["state"] == state


def test_a_run_without_its_proofs_has_failed_on_wandb_too(start: Start, wandb: WandbServer) -> None:
    start("run.finish()", success={"files": ["results/model.pt"]}).outcome()
    assert wandb.runs[RUN].exit_codes == [0, 1]


def test_a_program_that_was_started_again_has_one_run(start: Start, wandb: WandbServer) -> None:
    outcome = start(f"if start == 0: {KILLED}\n", restarts={"signal": 1}).outcome()
    assert [start.reason for start in outcome.starts] == ["signal", "finished"]
    assert list(wandb.runs) == [RUN]
    assert wandb.runs[RUN].state == "finished"


def test_ranks_that_all_report_have_a_run_each(start: Start, wandb: WandbServer) -> None:
    start("run.finish()", ranks=2).outcome()
    assert sorted(wandb.runs) == [RUN, f"{RUN}-rank1"]
    assert {run.state for run in wandb.runs.values()} == {"finished"}


def test_what_a_program_calls_a_run_of_wandb_may_be_anything(tmp_path: Path) -> None:
    folder = tmp_path / layout.WANDB_FILES / "run-20260101_000000-x"
    folder.mkdir(parents=True)
    (folder / "run-a.wandb").write_bytes(os.urandom(4096))
    (folder / "run-b.wandb").write_bytes(b":W&B\xe1\xbe\x00" + os.urandom(4096))
    (folder / "run-c.wandb").mkdir()
    (folder / "run-d.wandb").write_bytes(b"")
    os.mkfifo(folder / "run-e.wandb")
    (folder / f"run-{'x' * 200}.wandb").write_bytes(b"")
    found = {run.id: run for run in runs_since(tmp_path, 0.0)}
    assert set(found) <= {"a", "b", "d"}
    assert found["a"].exit_code is found["d"].exit_code is None
