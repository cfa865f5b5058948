"""Programs that write a checkpoint slowly, or are killed halfway: none continues from an incomplete one."""

import os
import re

import pytest

from tests.e2e.market import vanish
from tests.e2e.terminal import JOBS, WITH_STUB_TORCH, Launch, Terminal
from tests.emulators.vast import VastEmulator
from tests.waiting import LONGEST_S, eventually

pytestmark = [pytest.mark.slow, pytest.mark.torch]

WRITER_S = float(os.environ.get("WRITER_S", "6"))
"""Seconds that the writer takes for one checkpoint: more than two looks of the watcher."""
STARTS = re.compile(r"rank0 continues after step (\d+)$", re.MULTILINE)


def launch(rented: Terminal, style: str, killed_at: str, *changes: str) -> Launch:
    command = f"command=python slow_writer.py {style} {WRITER_S} {killed_at}"
    limits = "limits={usd: 1, hours: 0.3, stall_s: 300}"
    settings = (command, "ranks=1", "checkpoints={files: own/*, every_s: 6}", limits, *changes)
    words = [word for setting in settings for word in ("--set", setting)]
    return rented.start(
        "launch", str(JOBS / "script.yaml"), "--provider", "vast", "-y", *words, *WITH_STUB_TORCH
    )


def written(vast: VastEmulator, step: int) -> int:
    """Files of that checkpoint on the machine, or slices of its only file."""
    (folder,) = vast.folder.glob("C.*/root/vastrun/code/own")
    file = folder / f"checkpoint-{step}.bin"
    if file.exists():
        return file.stat().st_size // 3000
    return len(list((folder / f"checkpoint-{step}").glob("*.bin")))


def starts(rented: Terminal) -> list[int]:
    """The steps after which the program started, on all machines."""
    logs = sorted((rented.folder / "runs").glob("*/log.txt"), key=lambda log: log.stat().st_mtime)
    return [int(step) for log in logs for step in STARTS.findall(log.read_text())]


@pytest.mark.parametrize("style", ["file", "parts", "marked"])
def test_a_checkpoint_that_is_still_written_when_the_machine_is_lost_is_not_continued_from(
    style: str, rented: Terminal, vast: VastEmulator
) -> None:
    first = launch(rented, style, "-", "retry={lost: 2}")
    first.shows("checkpoint step-000010 downloaded")
    eventually(lambda: written(vast, 20) >= 8, within_s=LONGEST_S + WRITER_S, what="most of step 20")
    vanish(vast)
    # The next machine writes step 20 again, to its end.
    first.shows("checkpoint step-000020 downloaded", within_s=LONGEST_S + WRITER_S)
    assert first.err.count("checkpoint step-000020 downloaded") == 1
    assert "saved step 20" in first.err
    vanish(vast)
    done = first.end()

    assert done.exit_code == 0, done.err
    assert starts(rented) == [0, 10, 20]
    assert len(vast.instances) == 0


@pytest.mark.parametrize("style", ["file", "parts", "marked"])
@pytest.mark.parametrize("again", ["restarts={signal: 1}", "retry={signal: 1}"], ids=["here", "elsewhere"])
def test_a_checkpoint_whose_writer_was_killed_halfway_is_not_continued_from(
    style: str, again: str, rented: Terminal, vast: VastEmulator
) -> None:
    first = launch(rented, style, "5", again, "success={log: writing step 20}")
    first.shows("continues after step 10", within_s=LONGEST_S + WRITER_S)
    first.shows("checkpoint step-000020 downloaded", within_s=LONGEST_S + WRITER_S)
    assert "saved step 20" in first.err
    assert rented.type("stop", "last").exit_code == 0
    first.end()
    assert starts(rented) == [0, 10]
    assert len(vast.instances) == 0
