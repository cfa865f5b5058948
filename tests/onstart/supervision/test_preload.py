"""Ranks of the onboard trainer: copies of a process that has torch loaded, or processes like any others."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import training
from tests.trainer import sessions
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome

pytestmark = pytest.mark.torch

OF_AN_IMAGE_THAT_STARTS_THREADS = """
import sys, threading
if "vastrun.onstart.supervision.launch_agent" in sys.orig_argv:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@pytest.mark.parametrize(("customization", "alone"), [("", False), (OF_AN_IMAGE_THAT_STARTS_THREADS, True)])
@pytest.mark.slow
def test_ranks_import_torch_by_themselves_where_a_copy_would_differ_from_a_new_process(
    tmp_path: Path, customization: str, alone: bool
) -> None:
    (tmp_path / "sitecustomize.py").write_text(customization)
    box = sessions.prepare(tmp_path / "box")
    job = json.loads((box / layout.JOB).read_text())
    job["program"] = training({**job["program"]["config"], "wandb": {"mode": "offline"}})  # W&B with torch
    (box / layout.JOB).write_text(json.dumps({**job, "ranks": 1}))
    here = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "vastrun.onstart.supervise"],
        env=os.environ | {"VASTRUN_BOX": str(box), "PYTHONPATH": f"{here}:{tmp_path}"},
        timeout=LONGEST_S,
    )
    assert done.returncode == 0, (box / layout.LOG).read_text()
    assert Outcome.from_json((box / layout.OUTCOME).read_text()).reason == "finished"
    assert json.loads((box / layout.WANDB).read_text())["state"] == "finished"
    assert ("each rank imports torch itself" in (box / layout.AGENT_LOG).read_text()) == alone
