"""A program, a torch or a job file that cannot be started or read is told in the outcome."""

from pathlib import Path

import pytest

from tests.onstart.supervision.launches import Launcher


def test_a_program_that_does_not_exist_is_told_in_the_log(launch: Launcher) -> None:
    run = launch("", command=["no-such-program"], ranks=1)
    why = "cannot run no-such-program: No such file or directory"
    assert run.outcome().detail == f"rank 0 exited with code 127; last line: {why}"
    assert f"rank0 {why}" in run.log()


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("#!/bin/bash\r", "its first line ends with a carriage return"),
        ("#!/no/such/python3 -u", "its interpreter was not found: /no/such/python3 -u"),
    ],
)
def test_a_script_whose_interpreter_is_not_there_is_told_why(
    launch: Launcher, tmp_path: Path, first: str, why: str
) -> None:
    script = tmp_path / "go.sh"
    script.write_bytes(f"{first}\necho hi\n".encode())
    script.chmod(0o755)
    assert why in launch("", command=[str(script)], ranks=1).outcome().detail


def broken_torch(folder: Path) -> dict[str, str]:
    """Variables with which a torch is found that cannot be imported."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.12 is missing')")
    return {"PYTHONPATH": str(folder)}


def test_a_torch_that_cannot_be_imported_is_told_in_the_outcome(launch: Launcher, tmp_path: Path) -> None:
    outcome = launch("", train={"steps": 1}, command=None, env=broken_torch(tmp_path)).outcome()
    assert outcome.reason == "error"
    assert outcome.detail == (
        "the launch agent failed before any rank started: ImportError: libcudart.so.12 is missing"
    )


def test_programs_need_no_torch_and_ranks_have_torchruns_variables(launch: Launcher, tmp_path: Path) -> None:
    run = launch(
        """
        import json, socket
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID")
        if rank == 0:
            with socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as server:
                server.accept()
        else:
            address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
            while True:
                try:
                    socket.create_connection(address).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
        print(*(os.environ[name] for name in names))
        """,
        env=broken_torch(tmp_path),
    )
    assert run.outcome().reason == "finished"
    assert {"rank0 0 0 2 2 0 calm-heron-3f1a", "rank1 1 1 2 2 0 calm-heron-3f1a"} <= set(run.log())


def test_a_job_that_cannot_be_read_still_gives_an_outcome(launch: Launcher) -> None:
    run = launch("", ranks=[])
    outcome = run.outcome()
    assert run.wait() == 1
    assert outcome.reason == "error"
    assert outcome.detail.startswith("the supervisor failed: ")
