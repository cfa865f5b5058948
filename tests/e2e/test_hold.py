"""A machine that is held: runs and batches start on its slots, and its end is the end of all of it."""

import pytest

from tests.e2e.terminal import WITH_STUB_TORCH, Terminal

JOB = """\
name: own
resources: {gpus: 0, disk_gb: 8}
ranks: 1
limits: {hours: 0.2}
env: {PYTHONPATH: %s}
command: python -c "print('n is {n}')"
success: {log: "n is"}
"""


@pytest.mark.slow
def test_a_batch_runs_on_the_slots_of_a_machine_that_is_held(terminal: Terminal) -> None:
    (terminal.folder / "job.yaml").write_text(JOB % WITH_STUB_TORCH[1].rpartition("=")[2])
    held = terminal.type("hold", "job.yaml", "--slots", "2", "-d")
    assert held.exit_code == 0, held.err
    assert "the machine takes slots: 2" in held.err

    done = terminal.type("sweep", "job.yaml", "n=1,2,3", "--provider", "pool", "--parallel", "2")
    assert done.exit_code == 0, done.err
    assert done.out.count("SUCCEEDED") == 3

    runs = terminal.type("status", "--json").json()["runs"]
    (holder,) = [run["id"] for run in runs if run["job"] == "hold-own"]
    assert terminal.type("stop", holder).exit_code == 0
    assert terminal.leftovers() == []


def test_without_a_machine_that_is_held_a_slot_is_refused_with_what_to_type(terminal: Terminal) -> None:
    (terminal.folder / "job.yaml").write_text(JOB % "/nowhere")
    done = terminal.type("launch", "job.yaml", "--provider", "pool")
    assert done.exit_code == 8
    assert "no machine is held" in done.err and "vastrun hold" in done.err
