"""Programs of the user's own that are stopped, from the command line to the verdict."""

import re
import signal
from pathlib import Path

import pytest

from tests.e2e.terminal import WITH_STUB_TORCH, Terminal
from tests.slow import slow
from tests.waiting import eventually

SAVES = """\
import os, signal, sys, time
from vastrun import beat
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
for step in range(1, 600):
    beat(step); print("step", step, flush=True); time.sleep(0.05)
    if asked:
        open(os.path.join(os.environ["VASTRUN_OUTPUTS"], "saved.txt"), "w").write(str(step))
        print("saved at", step, flush=True)
        sys.exit(0)
"""


def write_job(folder: Path, program: str, **fields: str) -> str:
    (folder / "code").mkdir()
    (folder / "code" / "x.py").write_text(program)
    usual = {
        "name": "own",
        "resources": "{gpus: 0, disk_gb: 8}",
        "limits": "{hours: 0.1, stall_s: 30}",
        "code": "{path: code}",
        "success": "{exit_code: 0}",
        "command": "python x.py",
    }
    (folder / "job.yaml").write_text("".join(f"{name}: {text}\n" for name, text in (usual | fields).items()))
    return "job.yaml"


@pytest.mark.parametrize(
    ("success", "verdict", "exit_code", "proof"),
    [
        *slow(("{exit_code: 0}", "STOPPED: stopped at your request", 3, "NO       stop")),
        ("{steps: 599, exit_code: 0}", "STOPPED: stopped at your request", 3, " of 599"),
        ("{steps: 3, files: saved.txt}", "SUCCEEDED", 0, "yes      stop"),
    ],
)
def test_a_program_that_saves_and_exits_0_when_stopped_has_succeeded_only_if_its_steps_were_done(
    terminal: Terminal, success: str, verdict: str, exit_code: int, proof: str
) -> None:
    launch = terminal.start("launch", write_job(terminal.folder, SAVES, success=success), *WITH_STUB_TORCH)
    launch.shows("step 6")
    launch.send(signal.SIGTERM)
    done = launch.end()

    assert done.exit_code == exit_code, done.err
    assert verdict in done.out
    assert proof in done.out
    assert "SIGTERM was sent" in done.out
    assert len(list((terminal.outputs() / "outputs").rglob("saved.txt"))) == 1


@pytest.mark.parametrize(
    "command",
    [
        "python x.py 2>&1 | tee $VASTRUN_OUTPUTS/train.log",
        *slow(
            ("bash -c 'python x.py | grep --line-buffered s' | sed -u s/e/e/ > $VASTRUN_OUTPUTS/train.log",)
        ),
    ],
)
def test_a_program_with_piped_output_may_save_when_it_is_to_stop(terminal: Terminal, command: str) -> None:
    job = write_job(terminal.folder, SAVES, command=command, success="{files: saved.txt}")
    launch = terminal.start("launch", job, *WITH_STUB_TORCH)
    eventually(lambda: b"step 6" in b"".join(log.read_bytes() for log in terminal.state.rglob("train.log")))
    launch.send(signal.SIGTERM)
    done = launch.end()

    assert done.exit_code == 3, done.err
    assert "yes      success.files" in done.out
    out = terminal.outputs() / "outputs"
    [saved], [log] = out.rglob("saved.txt"), out.rglob("train.log")
    assert f"saved at {saved.read_text()}" in log.read_text()
    assert terminal.leftovers() == []


KILLED = """\
import os, signal
if os.environ["VASTRUN_RESTART"] == "0": os.kill(os.getpid(), signal.SIGKILL)
print("second start fine", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("export A=1; python x.py; echo end", " (exit code 137)"),
        ("bash go.sh", " (exit code 137)"),
        ("python x.py | cat", " (exit code 137)"),
        ("python x.py", ""),
    ],
)
def test_a_program_killed_by_a_signal_is_restarted_whatever_started_it(
    terminal: Terminal, command: str, code: str
) -> None:
    fields = {"command": command, "restarts": "{signal: 2}", "success": "{log: second start fine}"}
    job = write_job(terminal.folder, KILLED, **fields)
    (terminal.folder / "code" / "go.sh").write_text("set -e\npython x.py\necho end\n")
    done = terminal.type("launch", job, *WITH_STUB_TORCH)
    assert done.exit_code == 0, done.err
    assert f"the ranks were restarted once, after: rank 0 was killed by SIGKILL{code}\n" in done.out


@pytest.mark.torch
@pytest.mark.slow
def test_status_says_of_a_rank_that_has_ended_that_it_has(terminal: Terminal) -> None:
    waits = "import os, time; time.sleep(99 * int(os.environ['RANK']))"
    launch = terminal.start("launch", write_job(terminal.folder, waits, ranks="2"))
    launch.shows("  train ")
    ended = re.compile(r"^ *0 +- .* ended$", re.MULTILINE)
    shown = eventually(lambda: (out := terminal.type("status", "last").out) and ended.search(out) and out)
    assert re.search(r"^ *1 +[0-9]+ .* [0-9.]+ ?[ms]", shown, re.MULTILINE), shown
    terminal.type("stop", "last", "--now")
    launch.end()
