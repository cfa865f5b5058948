"""Which process is the program of a rank that a shell started."""

import os
import signal
import subprocess

import pytest

from tests.waiting import eventually
from vastrun.onstart.supervision.processes import descendants, innermost_program, name_of


@pytest.mark.parametrize(
    ("script", "names", "has_program"),
    [
        ("sleep 600; true", ["sleep"], True),
        ("sleep 600 | cat; true", ["cat", "sleep"], True),
        ("sleep 600 & tail -f /dev/null; true", ["sleep", "tail"], False),
        ("bash -c 'sleep 600; true'; true", ["bash", "sleep"], True),
    ],
    ids=["one", "with a filter", "two", "behind another shell"],
)
def test_the_program_of_a_shell_is_the_only_process_that_it_waits_for(
    script: str, names: list[str], has_program: bool
) -> None:
    with subprocess.Popen(["bash", "-c", script], start_new_session=True) as shell:
        try:
            assert eventually(lambda: sorted(map(name_of, descendants(shell.pid))) == names)
            found = innermost_program(shell.pid)
            assert (name_of(found), found == shell.pid) == (
                ("sleep", False) if has_program else ("bash", True)
            )
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
