"""The records and logs of background drivers, and their errors in a program that waits; no process."""

import fcntl
import inspect
import os
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import Terminal
from vastrun.launcher.api.driver_process import BoundedLog
from vastrun.launcher.api.drivers import MAX_LOGS, DriverFolder, Target, error_in, error_line
from vastrun.launcher.api.runs import find_open_target
from vastrun.launcher.core import Cause, errors
from vastrun.launcher.core.errors import HeldError, JobFileError, ProviderError, VastrunError

RUN = Target("run", "calm-heron-3f1a")


def test_a_record_is_locked_while_its_driver_lives(tmp_path: Path) -> None:
    folder = DriverFolder(tmp_path)
    with folder.claim(RUN):
        assert folder.is_alive(RUN)
        with pytest.raises(HeldError), DriverFolder(tmp_path).claim(RUN):
            pass
    assert not folder.is_alive(RUN)
    record = folder.find(RUN)
    assert record is not None and (record.target, record.pid, record.error) == (RUN, os.getpid(), "")


def test_a_record_says_why_its_driver_could_not_go_on(tmp_path: Path) -> None:
    folder = DriverFolder(tmp_path)
    with pytest.raises(ValueError, match="x"), folder.claim(RUN):
        raise ValueError("x")
    record = folder.find(RUN)
    assert record is not None and record.error == "ValueError: x"
    folder.remove(RUN)
    assert folder.records() == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"kind": "run"}',
        '{"a": 1}',
        '{"kind":"run","name":"x","pid":"y","folder":7}',
        "[" * 9999,
    ],
)
def test_a_record_that_was_written_by_half_names_its_run_all_the_same(text: str, tmp_path: Path) -> None:
    (tmp_path / "run-calm-heron-3f1a.json").write_text(text)
    (record,) = DriverFolder(tmp_path).records()
    assert (record.target, record.folder, record.error) == (RUN, "", "")


def test_a_folder_that_is_not_there_has_no_records(tmp_path: Path) -> None:
    assert DriverFolder(tmp_path / "none").records() == []


def test_old_logs_are_removed_but_not_those_of_drivers_with_a_record(tmp_path: Path) -> None:
    folder = DriverFolder(tmp_path)
    for number in range(MAX_LOGS + 10):
        log = folder.log(Target("run", f"r{number}"))
        log.touch()
        os.utime(log, (number, number))
    with folder.claim(Target("run", "r0")):
        folder._prune()
    assert len(list(tmp_path.glob("*.log"))) == MAX_LOGS + 1
    assert folder.log(Target("run", "r0")).exists()


def test_a_log_is_of_bounded_size(tmp_path: Path) -> None:
    path, saved = tmp_path / "run.log", (os.dup(1), os.dup(2))
    written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.dup2(written, 2)
        log = BoundedLog(path, max_bytes=1000)
        for number in range(100):
            log.write(f"line {number}\n")
    finally:
        for number, descriptor in zip((1, 2), saved, strict=True):
            os.dup2(descriptor, number)
    assert path.stat().st_size <= 1100 and Path(f"{path}.1").stat().st_size <= 1100
    assert Path(f"{path}.1").read_text().count("\n") > 10
    assert path.read_text().endswith("line 99\n")
    assert fcntl.fcntl(2, fcntl.F_GETFD) is not None


def test_what_is_left_to_be_driven_is_the_newest_open_attempt(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, Training(seconds=600.0))
    terminal.launch("--detach")
    ledger, (run,) = terminal.ledger, terminal.ledger.runs()
    assert find_open_target(ledger, Target("run", run.id), terminal.clock.now()) == Target("run", run.id)
    assert find_open_target(ledger, RUN, terminal.clock.now()) is None
    assert find_open_target(ledger, Target("batch", "widths"), terminal.clock.now()) is None
    terminal.type("stop", run.id)
    assert find_open_target(ledger, Target("run", run.id), terminal.clock.now()) is None


KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, VastrunError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_comes_through_as_it_was(kind: type[VastrunError]) -> None:
    error = kind(("a", "b")) if issubclass(kind, JobFileError) else kind("what", hint="try")
    found = error_in(error_line(error))
    assert type(found) is kind
    assert (str(found), found.hint, found.cause) == (str(error), error.hint, error.cause)


def test_a_cause_that_is_not_that_of_its_class_comes_through() -> None:
    found = error_in(error_line(ProviderError("what", cause=Cause.PREEMPTED)))
    assert found is not None and found.cause is Cause.PREEMPTED


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Segmentation fault",
        "[]",
        '{"error": "Cause", "message": "", "hint": "", "cause": "hang", "faults": null}',
        '{"error": "nothing", "message": "", "hint": "", "cause": "hang", "faults": null}',
        '{"error": "VastrunError"}',
    ],
)
def test_what_no_launcher_wrote_is_no_error_of_ours(line: str) -> None:
    assert error_in(line) is None


def test_the_command_that_continues_is_named() -> None:
    assert Target("run", "calm-heron-3f1a").resume_command == "vastrun resume calm-heron-3f1a"
    assert Target("batch", "widths").resume_command == "vastrun batch resume widths"
