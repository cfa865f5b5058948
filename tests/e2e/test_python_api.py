"""`import vastrun` in programs, each in a fresh interpreter, with real runs on this computer."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.terminal import STUB_TORCH, Terminal
from tests.waiting import LONGEST_S, eventually

DOCS = Path(__file__).parents[2] / "docs" / "python-api.md"
JOB = {
    "name": "tiny",
    "resources": {"gpus": 0, "disk_gb": 8},
    "ranks": 1,
    "limits": {"hours": 0.2},
    "env": {"PYTHONPATH": str(STUB_TORCH)},
    "command": "python -c '{program}'",
    "success": {"steps": 3},
}
PASSES = "from vastrun import beat; [beat(step, loss=1 / step) for step in (1, 2, 3)]"
WAITS = "import time; from vastrun import beat; beat(1); time.sleep({s}); beat(3)"
TAKEN = ["launcher", "trainer", "click", "yaml", "tests"]
"""Names that lie in the user's folder, too."""


def job(program: str) -> dict[str, Any]:
    return {**JOB, "command": ["python", "-c", program]}


def write(terminal: Terminal, program: str, body: str) -> None:
    """The program, with the job as JOB, beside files whose names are those of modules of ours."""
    for name in TAKEN:
        (terminal.folder / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    # The program itself does not look there (-P); whether its launcher does is seen here.
    head = (
        f"import json, os, signal, sys, threading, vastrun\nJOB = json.loads({json.dumps(job(program))!r})\n"
    )
    (terminal.folder / "program.py").write_text(head + body)


def start(terminal: Terminal, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *(options or ("-P",)), "program.py"],
        cwd=terminal.folder,
        env=terminal.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """What it printed; fails when it failed."""
    out, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, err
    assert err == ""
    return out


@pytest.mark.slow
def test_a_script_launches_a_job_and_has_its_verdict_and_its_metrics(terminal: Terminal) -> None:
    body = """
if __name__ == "__main__":
    run = vastrun.launch(JOB)
    result = run.wait()
    print(json.dumps([run.id, result.verdict, result.exit_code, run.metrics(), str(result.outputs)]))
"""
    write(terminal, PASSES, body)
    run_id, verdict, code, metrics, outputs = json.loads(output_of(start(terminal)))
    assert (verdict, code) == ("SUCCEEDED", 0)
    assert [(line["step"], line["loss"]) for line in metrics] == [
        (1, 1.0),
        (2, 0.5),
        (3, pytest.approx(1 / 3)),
    ]
    assert Path(outputs) == terminal.folder / "runs" / run_id
    assert terminal.type("status", "last", "--json").json()["run"]["id"] == run_id
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_a_script_launches_beside_a_launcher_and_a_trainer_of_its_own_and_an_installed_trainer(
    terminal: Terminal,
) -> None:
    body = """
import launcher, trainer.loop

if __name__ == "__main__":
    assert launcher.MINE and trainer.loop.MINE
    print(vastrun.launch(JOB).wait().verdict)
"""
    installed = terminal.folder / "site"
    for module in ("launcher.py", "trainer/__init__.py", "trainer/loop.py", "site/trainer.py"):
        (terminal.folder / module).parent.mkdir(exist_ok=True)
        (terminal.folder / module).write_text("MINE = True\n")
    terminal.variables["PYTHONPATH"] = str(installed)
    head = f"import json, vastrun\nJOB = json.loads({json.dumps(job(PASSES))!r})\n"
    (terminal.folder / "program.py").write_text(head + body)
    assert output_of(start(terminal, "-B")) == "SUCCEEDED\n"


@pytest.mark.slow
def test_cell_of_a_notebook_runs_in_any_thread_and_its_streams_have_no_descriptor(terminal: Terminal) -> None:
    body = """
import io

def cell():
    run = vastrun.launch(JOB)
    sources = {line.source for line in run.logs(follow=True)}
    found.append([run.wait(timeout=200).verdict, sorted(sources & {"rank0", "supervisor"}), repr(run)])

found, out = [], sys.stdout
sys.stdout = sys.stderr = io.StringIO()
handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
thread = threading.Thread(target=cell)
thread.start()
thread.join()
assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
print(json.dumps(found), repr(sys.stdout.getvalue()), file=out)
"""
    write(terminal, PASSES.replace("loss=", "a=") + "; print('hi')", body)
    out = output_of(start(terminal))
    assert re.search(
        r'\["SUCCEEDED", \["rank0", "supervisor"\], "<run [a-z-]+-[0-9a-f]{4}: SUCCEEDED, step 3 of 3, ', out
    )
    assert out.endswith(" ''\n")
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_an_interrupt_ends_the_wait_alone_and_another_program_waits_on(terminal: Terminal) -> None:
    body = """
run = vastrun.run(sys.argv[1]) if sys.argv[1:] else vastrun.launch(JOB)
try:
    print(run.id, flush=True)
    run.wait()
except KeyboardInterrupt:
    print("interrupted", run.status().verdict, run.status().is_driven, flush=True)
    print(run.wait().verdict)
"""
    write(terminal, WAITS.format(s=8), body)
    process = start(terminal)
    eventually(lambda: '"phase": "train"' in terminal.type("status", "--json").out, what="a training")
    process.send_signal(signal.SIGINT)
    _, interrupted, verdict = output_of(process).splitlines()
    assert (interrupted, verdict) == ("interrupted None True", "SUCCEEDED")
    assert terminal.leftovers() == []


def test_a_program_that_is_killed_leaves_its_run_to_its_launcher(terminal: Terminal) -> None:
    write(terminal, WAITS.format(s=4), "print(vastrun.launch(JOB).id, flush=True)\nsignal.pause()\n")
    process = start(terminal)
    assert process.stdout is not None
    run_id = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    done = terminal.type("wait", run_id, "--json")
    assert (done.exit_code, done.json()["run"]["verdict"]) == (0, "SUCCEEDED"), done.err
    assert (terminal.folder / "runs" / run_id / "result.json").is_file()
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_a_launcher_that_is_killed_is_told_and_another_one_takes_over(terminal: Terminal) -> None:
    body = """
import psutil

run = vastrun.launch(JOB)
while run.status().phase != "train":
    threading.Event().wait(0.05)
(launcher,) = psutil.Process().children()
assert launcher.cmdline()[-2:] == ["run", run.id]
launcher.kill()
try:
    run.wait()
except vastrun.errors.VastrunError as error:
    print(str(error).replace(run.id, "RUN"), "|", error.hint.replace(run.id, "RUN"))
print(run.wait().verdict)
"""
    write(terminal, WAITS.format(s=4), body)
    told, verdict = output_of(start(terminal)).splitlines()
    assert told == "the launcher of RUN ended with exit code -9 | vastrun resume RUN"
    assert verdict == "SUCCEEDED"
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_the_example_of_the_documentation_works(terminal: Terminal) -> None:
    (example,) = re.findall(
        r"^```python\n(# example\.py\n.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL
    )
    (terminal.folder / "program.py").write_text(example)
    shown = re.findall(r"^```text\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    out = output_of(start(terminal))
    assert _form(out) == _form(shown[0])
    assert terminal.leftovers() == []


def _form(text: str) -> str:
    """The text without what differs between two runs."""
    return re.sub(r"[a-z]+-[a-z]+-[0-9a-f]{4}", "RUN", text)
