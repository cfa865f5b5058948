"""Ranks that hang are ended, and the one that the others wait for is named; a line in a log is a move."""

import pytest

from tests.onstart.supervision.launches import Launcher
from tests.waiting import LONGEST_S


def test_of_ranks_that_hang_the_one_the_others_wait_for_is_named_with_its_frame(launch: Launcher) -> None:
    run = launch(
        """
        def wait_for_a_file_that_never_comes():
            time.sleep(600)

        heart.beat(5, "data")
        if rank == 1:
            wait_for_a_file_that_never_comes()
        heart.beat(5, "backward")
        time.sleep(600)
        """,
        stall_s=2,
    )
    outcome = run.outcome()
    assert (run.wait(), outcome.reason) == (75, "hang")
    assert outcome.hang is not None
    assert (outcome.hang.rank, outcome.hang.step, outcome.hang.activity) == (1, 5, "data")
    assert outcome.hang.frame.startswith("code/program.py:")
    assert outcome.hang.frame.endswith(" wait_for_a_file_that_never_comes")
    assert outcome.hang.stacks == ("run/stacks/rank-0.txt", "run/stacks/rank-1.txt")
    assert all("most recent call first" in (run.box / path).read_text() for path in outcome.hang.stacks)


def test_of_ranks_that_all_wait_for_each_other_the_collectives_are_named(launch: Launcher) -> None:
    run = launch(
        """
        import importlib.util

        # By their place these are torch's.
        path = Path(f"rank-{rank}/site-packages/torch/distributed/distributed_c10d.py")
        path.parent.mkdir(parents=True)
        path.write_text(
            "import time\\n"
            "def broadcast(): time.sleep(600)\\n"
            "def all_reduce(): time.sleep(600)\\n"
        )
        spec = importlib.util.spec_from_file_location("collectives", path.absolute())
        collectives = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(collectives)
        heart.beat(5, activity="forward")
        collectives.broadcast() if rank == 0 else collectives.all_reduce()
        """,
        stall_s=2,
    )
    outcome = run.outcome()
    assert outcome.reason == "hang"
    assert outcome.hang is not None and outcome.hang.in_collective
    assert outcome.hang.waits == ("rank 0 in broadcast", "rank 1 in all_reduce")
    assert outcome.detail.endswith("; waiting: rank 0 in broadcast, rank 1 in all_reduce")


@pytest.mark.torch
@pytest.mark.slow
def test_a_rank_that_never_beats_is_named_when_one_that_does_waits_for_it(launch: Launcher) -> None:
    run = launch(
        """
        import torch.distributed as dist
        dist.init_process_group("gloo")
        if rank == 0:
            heart.beat(3)
            dist.barrier()
        time.sleep(600)
        """,
        stall_s=3,
    )
    hang = run.outcome().hang
    assert hang is not None
    assert (hang.rank, hang.in_collective) == (1, False), hang
    assert 3 <= hang.stalled_s < LONGEST_S


def test_a_program_that_beats_and_prints_nothing_hangs_by_its_start_limit(launch: Launcher) -> None:
    run = launch("import time; time.sleep(600)", beating=False, ranks=1, start_s=2, stall_s=1)
    outcome = run.outcome()
    assert outcome.reason == "hang"
    assert outcome.hang is not None
    assert outcome.hang.frame == "code/program.py:1 <module>"


def test_a_hang_of_which_no_stack_can_be_written_is_a_hang_all_the_same(launch: Launcher) -> None:
    run = launch(
        """
        import os, time
        from pathlib import Path

        # Writing there fails, as on a full disk.
        rank = os.environ["RANK"]
        Path(os.environ["VASTRUN_RUN"], f"stacks/rank-{rank}.txt").symlink_to("/nowhere/stacks")
        print("waits", flush=True)
        time.sleep(600)
        """,
        beating=False,
        ranks=1,
        stall_s=1,
        start_s=1,
    )
    outcome = run.outcome()
    assert (run.wait(), outcome.reason) == (75, "hang"), outcome.detail
    assert outcome.hang is not None
    assert (outcome.hang.rank, outcome.hang.stacks) == (0, ())


def test_ranks_whose_files_cannot_move_are_not_restarted_and_keep_their_reason(launch: Launcher) -> None:
    run = launch(
        """
        Path(os.environ["VASTRUN_RUN"], "starts").write_text("in the way of a folder")
        sys.exit(76)
        """,
        ranks=1,
        restarts={"out_of_memory": 1},
    )
    outcome = run.outcome()
    assert (outcome.reason, len(outcome.starts)) == ("oom", 1), outcome.detail
    (line,) = [line for line in run.log() if line.startswith("supervisor no restart: ")]
    assert line.startswith("supervisor no restart: the files of this start cannot be moved: ")


def test_a_program_that_prints_lives_and_one_that_fell_silent_hangs(launch: Launcher) -> None:
    run = launch(
        """
        import time

        def waits_for_ever():
            time.sleep(600)

        for step in range(25):
            print("step", step, flush=True)
            time.sleep(0.2)
        waits_for_ever()
        """,
        beating=False,
        ranks=1,
        stall_s=2,
    )
    outcome = run.outcome()
    assert (run.wait(), outcome.reason) == (75, "hang")
    assert outcome.hang is not None
    assert outcome.hang.frame == "code/program.py:5 waits_for_ever"
    assert outcome.hang.stalled_s >= 2
    assert "step" not in outcome.detail, "it never said where it is"
    assert "rank0 step 24" in run.log()
