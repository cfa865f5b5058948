"""Launchers that are killed, detached, doubled, or that find no room: nothing is lost and nothing goes on."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import disks, parts
from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Terminal
from tests.slow import slow
from tests.waiting import eventually

PASSES = ("launch", str(JOBS / "script.yaml"), "--set", "ranks=1", *WITH_STUB_TORCH)
WAITS = (*PASSES, "--set", "command=python script.py waits")


@pytest.mark.parametrize("phase", ["train", *slow(("boot",), ("plan",), ("rent",), ("ship",), ("collect",))])
def test_a_launcher_killed_in_a_phase_is_resumed_to_the_right_verdict(phase: str, terminal: Terminal) -> None:
    launch = terminal.start(*PASSES)
    launch.shows(f"  {phase} ")
    launch.kill()
    done = terminal.type("resume", "last")
    assert done.exit_code == 0, done.err
    assert "SUCCEEDED" in done.out
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_without_a_resume_the_box_ends_by_its_lease(terminal: Terminal) -> None:
    launch = terminal.start(*WAITS, "--set", "limits.hours=0.006")
    launch.shows("step 3")
    launch.kill()
    assert terminal.leftovers() != []
    eventually(lambda: terminal.leftovers() == [], what="the end of the box by its lease")
    assert terminal.type("resume", "last").exit_code == 7


def test_without_a_machine_that_is_held_a_slot_is_refused_with_what_to_type(terminal: Terminal) -> None:
    done = terminal.type(*PASSES, "--provider", "pool")
    assert done.exit_code == 8
    assert "no machine is held" in done.err and "vastrun hold" in done.err


@pytest.mark.slow
def test_its_user_looks_around_on_the_machine_of_a_run_that_trains(terminal: Terminal) -> None:
    launch = terminal.start(*WAITS)
    launch.shows("step 3")

    seen = terminal.type("ssh", "last", "test -f run/status.json && echo $VASTRUN_INSTANCE; exit 3")
    port = terminal.type("forward", "last", "6006")

    assert seen.exit_code == 3, seen.err
    assert seen.out.startswith(terminal.type("status", "--json").out.split('"id": "')[1].split('"')[0])
    assert (port.exit_code, port.out) == (0, "")
    assert "http://127.0.0.1:6006 is already on this computer" in port.err
    assert launch.process.poll() is None


@pytest.mark.parametrize("command", ["attach", "wait"])
@pytest.mark.slow
def test_who_only_looks_at_a_run_is_ended_alone(command: str, terminal: Terminal) -> None:
    launch = terminal.start(*WAITS)
    launch.shows("step 3")
    viewer = terminal.start(command, "last")
    viewer.shows("driven by another launcher")

    viewer.send(signal.SIGTERM)

    viewer.end()
    assert launch.process.poll() is None
    assert terminal.type("status", "--json").json()["runs"][0]["verdict"] is None
    assert terminal.type("stop", "last").exit_code == 0
    assert launch.end().exit_code == 3
    assert terminal.leftovers() == []


@pytest.mark.parametrize("place", ["/proc/nowhere", "/sys/nowhere"])
def test_a_read_only_home_is_one_clear_error_before_any_rental(place: str, terminal: Terminal) -> None:
    done = terminal.type(*PASSES, XDG_STATE_HOME=place)
    assert done.exit_code == 1
    assert done.out == ""
    assert [line for line in done.err.splitlines() if line.startswith("error:")]
    assert "XDG_STATE_HOME" in done.err
    assert "Traceback" not in done.err


def test_a_read_only_outputs_folder_is_one_clear_error_before_any_rental(terminal: Terminal) -> None:
    done = terminal.type(*PASSES, "--out", "/proc/nowhere")
    assert done.exit_code == 1
    assert "--out" in done.err
    assert "Traceback" not in done.err
    assert terminal.leftovers() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 80 MB, mounted for this test alone."""
    parts.require("mounts")
    with disks.small_disk(tmp_path / "small", "80m") as disk:
        yield disk


def fill(path: Path) -> None:
    """`path` takes all the room that its disk has left."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass


@pytest.mark.slow
def test_a_disk_that_fills_while_outputs_download_loses_nothing(terminal: Terminal, small_disk: Path) -> None:
    filler = small_disk / "filler"
    launch = terminal.start(*PASSES, "--out", str(small_disk / "out"))
    launch.shows("  ship ")
    fill(filler)
    done = launch.end()

    assert done.exit_code == 1, done.err
    assert "space" in done.err
    assert "resume" in done.err
    assert "Traceback" not in done.err

    filler.unlink()
    done = terminal.type("resume", "last")
    assert done.exit_code == 0, done.err
    assert (small_disk / "out" / "outputs" / "result.txt").read_text() == "42\n"
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_outputs_that_find_no_room_come_home_to_another_folder(terminal: Terminal, small_disk: Path) -> None:
    launch = terminal.start(*PASSES, "--out", str(small_disk / "out"))
    launch.shows("  ship ")
    fill(small_disk / "filler")
    assert launch.end().exit_code == 1

    done = terminal.type("resume", "last", "--out", "elsewhere")

    assert done.exit_code == 0, done.err
    assert (terminal.folder / "elsewhere" / "outputs" / "result.txt").read_text() == "42\n"
    assert "all is well" in (terminal.folder / "elsewhere" / "log.txt").read_text()
    assert terminal.leftovers() == []
