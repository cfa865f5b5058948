"""What a slot leaves behind is found, whatever it did to hide, and a machine with any of it is not clean."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.onstart.holding import cleanliness
from vastrun.onstart.holding.machine import HeldBox, Process, list_processes

SHARED = HeldBox(units=2, cores=(0,), memory_mib=1024)


def ours(*scratch: Path) -> HeldBox:
    """A machine that is ours alone, but for its processes: here others start some, too."""
    return HeldBox(units=2, cores=(0,), memory_mib=1024, is_dedicated=True, scratch=tuple(map(str, scratch)))


Starts = Callable[..., int]


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A machine with the folder of one slot."""
    (tmp_path / layout.SLOTS / "gone.0000").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def starts() -> Iterator[Starts]:
    """Starts a program that has left its session, as a daemon does; none of them outlives the test."""
    pids: list[int] = []

    def start(*command: str, cwd: Path | None = None, **environment: str) -> int:
        env = {"PATH": os.environ["PATH"], **environment}
        process = subprocess.Popen(command, cwd=cwd, env=env, start_new_session=True)
        pids.append(process.pid)
        return process.pid

    yield start
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def lives(pid: int) -> bool:
    return pid in list_processes()


def of_slot(box: Path) -> dict[str, str]:
    return {"VASTRUN_BOX": str(box / layout.SLOTS / "gone.0000")}


def test_process_of_a_slot_that_is_gone_is_killed_also_in_another_session(box: Path, starts: Starts) -> None:
    pid = starts("sleep", "60", **of_slot(box))
    assert cleanliness.clean_up(box, SHARED, []) == ()
    assert not lives(pid)
    assert not (box / layout.SLOTS / "gone.0000").exists()


def test_what_a_slot_that_is_gone_starts_while_it_is_ended_is_killed_too(box: Path, starts: Starts) -> None:
    named = f"VASTRUN_BOX={of_slot(box)['VASTRUN_BOX']}"
    starts("sh", "-c", f"for again in 1 2 3; do {named} sleep 60; done; sleep 60", cwd=Path("/"))
    eventually(lambda: cleanliness.leftover_processes(box, [], list_processes()))
    assert cleanliness.clean_up(box, SHARED, []) == ()


def test_a_process_of_a_slot_that_is_there_goes_on(box: Path, starts: Starts) -> None:
    pid = starts("sleep", "60", cwd=box / layout.SLOTS / "gone.0000", **of_slot(box))
    assert cleanliness.clean_up(box, ours(), ["gone.0000"], wait_s=0, scratch=[box]) == ()
    assert lives(pid)
    assert (box / layout.SLOTS / "gone.0000").exists()


def test_a_process_without_an_environment_is_found_by_its_folder(box: Path, starts: Starts) -> None:
    pid = starts("sleep", "60", cwd=box / layout.SLOTS / "gone.0000")
    faults = cleanliness.clean_up(box, SHARED, [], wait_s=0)
    assert faults == (f"still running: sleep ({pid})",)
    assert lives(pid), "on a computer of the user's it may be the user"
    assert cleanliness.clean_up(box, ours(), ["another.0000"], scratch=[box]) == ()
    assert not lives(pid), "on a machine that is ours it is of the slot"


def test_a_process_that_holds_a_deleted_file_of_the_slot_is_found(box: Path, starts: Starts) -> None:
    note = box / layout.SLOTS / "gone.0000" / "note"
    note.write_text("a secret")
    pid = starts("bash", "-c", f"exec 3<{note}; rm {note}; echo >{box}/ready; exec sleep 60")
    eventually((box / "ready").exists)
    eventually(lambda: list_processes()[pid].name == "sleep")
    assert cleanliness.clean_up(box, SHARED, [], wait_s=0) == (f"still running: sleep ({pid})",)


def test_a_folder_that_was_never_whole_is_removed(box: Path) -> None:
    (box / layout.SLOTS / ".half.0000").mkdir()
    assert cleanliness.clean_up(box, SHARED, []) == ()
    assert not list((box / layout.SLOTS).iterdir())


def process(pid: int, parent: int, box: str = "") -> tuple[int, Process]:
    return pid, Process(parent=parent, name=f"p{pid}", identity=f"{pid} 7", box=box)


def test_on_a_machine_that_is_ours_who_was_started_by_nobody_known_is_a_stranger(box: Path) -> None:
    machine = replace(ours(), processes=("1 7", "10 7"))
    processes = dict(
        [
            process(1, 0),
            process(10, 1),  # an SSH server, there from the beginning
            process(11, 10),  # a session of it
            process(20, 1, str(box)),  # the machine's own run.sh
            process(21, 20),
            process(30, 1, f"{box}/slots/there.0000"),
            process(40, 0),  # docker exec
            process(50, 1),  # adopted by the first process: who started it has ended
            process(51, 50),
        ]
    )
    assert cleanliness.unknown_processes(machine, processes, box) == {50, 51}


def test_a_number_that_is_used_anew_is_a_stranger(box: Path) -> None:
    machine = replace(ours(), processes=("1 7", "10 6"))
    assert cleanliness.unknown_processes(machine, dict([process(1, 0), process(10, 1)]), box) == {10}


def test_files_in_shared_memory_are_leftovers_once_nothing_holds_them(tmp_path: Path, starts: Starts) -> None:
    for name in ("before", "left", "held"):
        (tmp_path / name).write_text("x")
    pid = starts("bash", "-c", f"exec 3<{tmp_path}/held; exec sleep 60")
    eventually(lambda: list_processes()[pid].name == "sleep")
    assert cleanliness.leftover_scratch_files(ours(tmp_path / "before"), [tmp_path]) == [tmp_path / "left"]


@pytest.fixture
def shm(tmp_path: Path) -> Path:
    """Shared memory with a file and a folder."""
    (tmp_path / "shm" / "folder").mkdir(parents=True)
    for name in ("before", "folder/file"):
        (tmp_path / "shm" / name).write_text("x")
    return tmp_path / "shm"


def test_our_machines_shared_memory_is_as_before_once_no_slot_is_there(box: Path, shm: Path) -> None:
    assert cleanliness.clean_up(box, ours(shm / "before"), [], scratch=[shm]) == ()
    assert [path.name for path in shm.iterdir()] == ["before"]


@pytest.mark.parametrize(
    ("machine", "active"),
    [(ours(), ["there.0000"]), (SHARED, [])],
    ids=["another slot may need it", "a computer of the user's"],
)
def test_shared_memory_of_others_is_left_alone(
    box: Path, shm: Path, machine: HeldBox, active: list[str]
) -> None:
    assert cleanliness.clean_up(box, machine, active, scratch=[shm]) == ()
    assert sorted(path.name for path in shm.iterdir()) == ["before", "folder"]


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What nvidia-smi prints, on a computer that has none."""
    printed, folder = tmp_path / "printed", tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncat {printed}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return printed


GPUS = HeldBox(units=2, cores=(0,), memory_mib=1024, gpus=("GPU-a", "GPU-b"), gpu_used_mib=(3, 3))


def test_a_gpu_whose_memory_is_not_free_is_not_clean_but_of_another_slot(box: Path, nvidia_smi: Path) -> None:
    nvidia_smi.write_text("0, GPU-a, 3\n1, GPU-b, 9000\n")
    assert cleanliness.clean_up(box, GPUS, [], wait_s=0) == ("9000 MiB of GPU-b are in use",)
    assert cleanliness.clean_up(box, GPUS, [], busy_gpus=["GPU-b"], wait_s=0) == ()


@pytest.mark.parametrize("printed", ["0, GPU-a, 3\n", "no devices were found\n", ""])
def test_a_gpu_that_is_no_longer_seen_is_not_clean(box: Path, nvidia_smi: Path, printed: str) -> None:
    nvidia_smi.write_text(printed)
    assert "GPU-b is no longer visible" in cleanliness.clean_up(box, GPUS, [], wait_s=0)


def test_memory_that_a_gpu_frees_late_is_waited_for(box: Path, nvidia_smi: Path, starts: Starts) -> None:
    nvidia_smi.write_text("0, GPU-a, 3\n1, GPU-b, 9000\n")
    free = nvidia_smi.with_name("free")
    free.write_text("0, GPU-a, 3\n1, GPU-b, 20\n")
    starts("bash", "-c", f"sleep 0.3; mv {free} {nvidia_smi}; exec sleep 60")
    assert cleanliness.clean_up(box, GPUS, []) == ()
