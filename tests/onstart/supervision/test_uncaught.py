"""What ended the Python processes of a program, by what they raised, whoever started them."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.onstart.supervision.concluding import raised
from vastrun.contract import layout
from vastrun.onstart.supervision import environment
from vastrun.onstart.supervision.failure_causes import UNCAUGHT, Uncaught, uncaught_folder, uncaught_of

STARTUP = Path(environment.__file__).parents[1] / "python_startup"
ENDS = {
    "a value": ("raise ValueError('boom')", "error"),
    "main memory": ("bytearray(1 << 62)", "oom"),
    "main memory of numpy": ("import numpy; numpy.empty(1 << 55)", "oom"),
    "fork": ("raise OSError(12, 'Cannot allocate memory')", "oom"),
    "memory of a GPU in JAX": ("raise RuntimeError('RESOURCE_EXHAUSTED: while running replica 0')", "oom"),
    "a full disk": ("open('/dev/full', 'w').write('x' * 100_000)", "disk"),
    "a full disk in the writer of a checkpoint": (
        "try:\n    open('/dev/full', 'w').write('x' * 100_000)\n"
        "finally:\n    raise RuntimeError('unexpected pos 704 vs 598')",
        "disk",
    ),
    "a process that was killed": ("subprocess.run(['sh', '-c', 'kill -9 $$'], check=True)", "signal"),
    "a process that a shell saw killed": ("subprocess.run(['sh', '-c', 'exit 137'], check=True)", "signal"),
    "a process that failed": ("subprocess.run(['sh', '-c', 'exit 1'], check=True)", "error"),
    "a worker of a pool": (
        "from concurrent.futures import ProcessPoolExecutor\n"
        "ProcessPoolExecutor(1).submit(os.abort).result()",
        "signal",
    ),
    "a worker of a pool that exited": (
        "from concurrent.futures import ProcessPoolExecutor\n"
        "ProcessPoolExecutor(1).submit(os._exit, 9).result()",
        "error",
    ),
    "a killed child that nobody names": (
        "if subprocess.run(['sh', '-c', 'kill -9 $$']).returncode: raise RuntimeError('a worker is gone')",
        "signal",
    ),
    "a text about a signal": (
        "raise RuntimeError('DataLoader worker (pid 7) is killed by signal: 9')",
        "error",
    ),
    "a connection between ranks": (
        "raise RuntimeError('[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:34567')",
        "communication",
    ),
    "NCCL": (
        "class DistError(RuntimeError): pass\nclass DistBackendError(DistError): pass\n"
        "raise DistBackendError('socketProgress: Connection closed by remote peer')",
        "communication",
    ),
    "a wrong use of NCCL": (
        "class DistBackendError(RuntimeError): pass\n"
        "raise DistBackendError('NCCL error in: x.cpp:77, invalid usage\\nDuplicate GPU detected')",
        "error",
    ),
    "no NCCL": ('raise RuntimeError("Distributed package doesn\'t have NCCL built in")', "error"),
    "a word that a signal has, too": ("raise ValueError('the signal is too short for SIGMA')", "error"),
}
RUNS = "import subprocess as s; s.run(['{python}', '{program}'], check=True)"
CHILD = (
    "import multiprocessing, runpy, sys; "
    "child = multiprocessing.get_context('{how}').Process(target=runpy.run_path, args=['{{program}}']); "
    "child.start(); child.join(); sys.exit(child.exitcode)"
)
HOOKS = "import sys, runpy; sys.excepthook = print; runpy.run_path('{program}')"
STARTS = {
    "itself": "exec {python} {program}",
    "a shell with a pipe": "set -o pipefail; {python} {program} | cat; exit $?",
    "a launcher": f'exec {{python}} -c "{RUNS}"',
    "a hook of its own": f'exec {{python}} -c "{HOOKS}"',
    "a fork of multiprocessing": f'exec {{python}} -c "{CHILD.format(how="fork")}"',
    "a spawn of multiprocessing": f'exec {{python}} -c "{CHILD.format(how="spawn")}"',
}


def ran(box: Path, script: str, program: str, **variables: str) -> Uncaught | None:
    """What explains the end of a rank with this program."""
    (box / "program.py").write_text(f"import os, subprocess, sys\n{program}\n")
    script = script.format(python=sys.executable, program=box / "program.py")
    folder = uncaught_folder(box, 0)
    env = {**os.environ, "PYTHONPATH": str(STARTUP), UNCAUGHT: str(folder), **variables}
    with subprocess.Popen(["bash", "-c", script], env=env, stderr=subprocess.DEVNULL) as process:
        process.wait()
    return uncaught_of(box, 0, process.pid, time.time())


def raised_in(box: Path, program: str, start: str = "itself", **variables: str) -> Uncaught:
    """What explains the end of a rank with this program, which there is."""
    found = ran(box, STARTS[start], program, **variables)
    assert found is not None
    return found


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.sampled(3)
def test_the_reason_is_that_of_the_failed_process(tmp_path: Path, start: str, end: str) -> None:
    program, reason = ENDS[end]
    assert raised_in(tmp_path, program, start).reason == reason


@pytest.mark.parametrize(
    ("program", "is_of_it"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', 9))", True),
        ("import urllib.request as r; r.urlopen('http://127.0.0.1:9/x')", True),
        ("import socket; raise socket.gaierror(-3, 'Temporary failure in name resolution')", True),
        ("raise FileNotFoundError('x')", False),
    ],
)
def test_an_error_of_the_network_is_known_by_its_type(tmp_path: Path, program: str, is_of_it: bool) -> None:
    assert raised_in(tmp_path, program).is_of_the_network is is_of_it


@pytest.mark.parametrize("start", STARTS)
def test_a_program_that_exits_after_its_child_was_killed_was_ended_by_that_signal(
    tmp_path: Path, start: str
) -> None:
    found = raised_in(tmp_path, "if subprocess.call(['sh', '-c', 'kill -9 $$']): sys.exit(1)", start)
    assert (found.reason, found.signal) == ("signal", "SIGKILL")
    assert found.line == f"process {found.child} was killed by SIGKILL"


@pytest.mark.parametrize(
    "program",
    [
        "sys.exit(1)",
        "print('MemoryError: x'); sys.exit(1)",
        "os._exit(1)",
        "sys.exit('No space')",
        "child = subprocess.Popen(['cat'], stdin=-1); child.kill(); child.wait(); sys.exit(1)",
        "import multiprocessing\nif __name__ == '__main__':\n"
        "    with multiprocessing.get_context('forkserver').Pool(1): pass\n"
        "    sys.exit(1)",
        "subprocess.call(['sh', '-c', 'exit 127']); sys.exit(1)",
    ],
)
def test_a_program_that_was_not_ended_by_an_exception_leaves_none(tmp_path: Path, program: str) -> None:
    assert ran(tmp_path, STARTS["itself"], program) is None


def test_of_the_processes_of_a_launcher_the_first_that_failed_by_itself_is_told(tmp_path: Path) -> None:
    both = (
        "if len(sys.argv) == 1:\n"
        "    for name in ('peer', 'own'): subprocess.run([sys.executable, __file__, name])\n"
        "    sys.exit('both failed: exit code 1')\n"
        "raise RuntimeError('[gloo/pair.cc] closed' if sys.argv[1] == 'peer' else 'own fault')"
    )
    assert raised_in(tmp_path, both).line == "RuntimeError: own fault"


@pytest.mark.parametrize("code", [0, 1])
def test_a_child_that_exits_while_it_handles_its_error_has_failed_by_that(tmp_path: Path, code: int) -> None:
    program = (
        "import multiprocessing\n"
        "def child():\n"
        "    try: 1 / 0\n"
        f"    except ZeroDivisionError: sys.exit({code})\n"
        "process = multiprocessing.get_context('fork').Process(target=child)\n"
        "process.start(); process.join(); sys.exit(1)"
    )
    found = ran(tmp_path, STARTS["itself"], program)
    assert (found.line if found else "") == ("ZeroDivisionError: division by zero" if code else "")


def test_of_a_killed_process_and_its_victims_the_killed_one_is_told(tmp_path: Path) -> None:
    program = (
        "if len(sys.argv) == 1:\n"
        "    one = subprocess.Popen(['sh', '-c', 'kill -9 $$'])\n"
        "    subprocess.run([sys.executable, __file__, 'peer'])\n"
        "    raise RuntimeError(f'exitcode  : {one.wait()} (pid: 7)')\n"
        "raise RuntimeError('[gloo/pair.cc] closed')"
    )
    assert raised_in(tmp_path, program).reason == "signal"


def test_a_handler_that_raises_while_the_record_is_written_does_not_prevent_it(tmp_path: Path) -> None:
    program = (
        "import json, signal\n"
        "def handler(*_): raise RuntimeError('a worker died')\n"
        "signal.signal(signal.SIGUSR1, handler)\n"
        "dump = json.dump\n"
        "def once(*arguments):\n"
        "    json.dump = dump\n"
        "    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "json.dump = once\n"
        "raise ValueError('boom')"
    )
    assert raised_in(tmp_path, program).line == "ValueError: boom"


def test_an_error_about_no_process_is_the_programs_own_whatever_failed_below_it(tmp_path: Path) -> None:
    tries = "subprocess.run([sys.executable, '-c', 'bytearray(1 << 62)'])\nraise ValueError('mine')"
    assert raised_in(tmp_path, tries).line == "ValueError: mine"


def test_the_environments_own_startup_module_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['THEIRS'] = 'ran'\n")
    path = os.pathsep.join([str(STARTUP), str(tmp_path)])
    found = raised_in(tmp_path, "raise ValueError(os.environ['THEIRS'])", PYTHONPATH=path)
    assert found.line == "ValueError: ran"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ValueError", "ValueError"),
        ("KeyError: 'u'", "KeyError: 'u'"),
        (
            '  File "t.py", line 1\n    def\n       ^\nSyntaxError: invalid syntax',
            "SyntaxError: invalid syntax",
        ),
        (
            "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
            "last):\n  File 'w.py', line 1, in fetch\nKeyError: 'shard'",
            "KeyError: Caught KeyError in DataLoader worker process 0: KeyError: 'shard'",
        ),
        ("ChildFailedError:\n=====\n  traceback : Signal 9\n====", "ChildFailedError: traceback : Signal 9"),
    ],
)
def test_the_line_has_the_first_and_the_last_words_of_a_message(tmp_path: Path, text: str, line: str) -> None:
    raised(tmp_path, 0, text)
    found = uncaught_of(tmp_path, 0, 1, 10.0)
    assert found is not None
    assert found.line == line


def test_a_record_that_is_none_and_one_of_another_time_count_for_nothing(tmp_path: Path) -> None:
    raised(tmp_path, 0, "ValueError: long ago", "ValueError")
    folder = uncaught_folder(tmp_path, 0)
    (folder / "2.json").write_text('{"pid": 2')
    (folder / "3.json").write_text('{"pid": 3, "at": 1000.0, "traceback": "", "chain": []}')
    assert uncaught_of(tmp_path, 0, 1, 1000.0) is None
    assert uncaught_of(tmp_path, 1, 1, 10.0) is None
    assert (tmp_path / layout.RANKS).is_dir()
