"""Curves of programs that log to TensorBoard alone, by the installed command."""

import json
from pathlib import Path

import pytest

from tests.e2e.terminal import Terminal
from tests.torch_builds import STUB_TORCH

PROGRAM = """\
import sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

rate, writer = float(sys.argv[1]), EventFileWriter("runs/first")
for step in range(1, 21):
    value = Summary.Value(tag="eval/accuracy", simple_value=rate * step)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
writer.close()
"""
JOB = f"""\
name: logs
resources: {{gpus: 0, disk_gb: 8}}
ranks: 1
limits: {{hours: 0.2}}
env: {{PYTHONPATH: {STUB_TORCH}}}
code: {{path: code}}
command: python train.py {{rate}}
success: {{exit_code: 0}}
"""


@pytest.mark.slow
def test_a_sweep_ranks_programs_that_log_to_tensorboard_alone(terminal: Terminal) -> None:
    pytest.importorskip("tensorboard")
    (terminal.folder / "code").mkdir()
    (terminal.folder / "code" / "train.py").write_text(PROGRAM)
    (terminal.folder / "job.yaml").write_text(JOB)

    metric = ("--metric", "eval/accuracy", "--goal", "max")
    done = terminal.type("sweep", "job.yaml", "rate=0.125,0.5,0.25", "--name", "logs", *metric)

    assert done.exit_code == 0, done.err
    results = terminal.type("batch", "results", "logs", "--json").json()
    ranked = [(point["values"]["rate"], point["metric"]) for point in results["points"]]
    assert ranked == [(0.5, 10.0), (0.25, 5.0), (0.125, 2.5)]
    assert {point["step"] for point in results["points"]} == {20}
    best = Path(results["points"][0]["outputs"])
    lines = [json.loads(line) for line in (best / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1] == {"step": 20, "eval/accuracy": 10.0}
    assert terminal.leftovers() == []
