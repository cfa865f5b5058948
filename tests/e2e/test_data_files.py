"""The files of `data:` are there before the ranks start; on a held machine they are downloaded once."""

import hashlib
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.terminal import WITH_STUB_TORCH, Terminal
from tests.onstart.transfer.file_server import FileServer, serving

CONTENT = b"1 2 3\n" * 100_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
JOB = """\
name: reader
resources: {gpus: 0, disk_gb: 8}
ranks: 1
limits: {hours: 0.2}
env: {PYTHONPATH: %s}
data:
  - {url: "%s", path: sets/numbers.txt, sha256: %s, size: 600000}
command: test "$(head -n 1 "$VASTRUN_DATA/sets/numbers.txt")" = "1 2 3" && echo the numbers are there
success: {log: the numbers are there}
"""


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(CONTENT) as state:
        yield state


def write_job(terminal: Terminal, server: FileServer, sha256: str = SHA256) -> str:
    path = WITH_STUB_TORCH[1].rpartition("=")[2]
    (terminal.folder / "job.yaml").write_text(JOB % (path, server.url, sha256))
    return "job.yaml"


@pytest.mark.slow
def test_a_program_finds_its_data_and_a_rehearsal_keeps_them(terminal: Terminal, server: FileServer) -> None:
    job = write_job(terminal, server)
    plan = terminal.type("plan", job, "--provider", "local")
    assert "0.0006 GB from 127.0.0.1" in plan.out
    server.cut_after = [1000]
    done = terminal.type("launch", job, "--provider", "local")
    assert done.exit_code == 0, done.err
    assert server.ranges == ["", "bytes=1000-"]
    log = (terminal.outputs() / "log.txt").read_text()
    assert "closed the connection early; continuing at 0.0 MB in 1 s" in log
    assert "; sha256 matches" in log

    box = ("--box", str(terminal.folder / "box"))
    first = terminal.type("rehearse", job, "download", *box)
    assert first.exit_code == 0, first.err
    again = terminal.type("rehearse", job, *box)
    assert again.exit_code == 0, again.err
    assert "sets/numbers.txt: already there, 0.6 MB; sha256 matches" in again.err
    assert len(server.ranges) == 3
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_wrong_checksum_and_a_missing_file_are_the_jobs_fault(terminal: Terminal, server: FileServer) -> None:
    done = terminal.type("launch", write_job(terminal, server, "0" * 64), "--provider", "local")
    assert done.exit_code == 5
    why = terminal.type("why", "last")
    assert "fix the program or the job file" in why.out
    assert f"the job file says {'0' * 64}" in why.out
    server.statuses = [404]
    done = terminal.type("launch", write_job(terminal, server), "--provider", "local")
    assert done.exit_code == 5
    assert "sets/numbers.txt: 127.0.0.1 has no such file (HTTP 404)" in terminal.type("why", "last").out
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_a_held_machine_downloads_once_for_all_its_runs(terminal: Terminal, server: FileServer) -> None:
    job = write_job(terminal, server)
    held = terminal.type("hold", job, "--slots", "2", "-d")
    assert held.exit_code == 0, held.err
    for _ in range(2):
        done = terminal.type("launch", job, "--provider", "pool")
        assert done.exit_code == 0, done.err
    assert "copied from this machine's cache, 0.6 MB" in done.err
    assert server.ranges == [""]
    release(terminal, "hold-reader")


def release(terminal: Terminal, job: str) -> None:
    """Stop the run that holds the machine; nothing is left."""
    runs = terminal.type("status", "--json").json()["runs"]
    (holder,) = [run["id"] for run in runs if run["job"] == job]
    assert terminal.type("stop", holder).exit_code == 0
    assert terminal.leftovers() == []


LOCAL = """\
name: local
resources: {gpus: 0, disk_gb: 8}
ranks: 1
limits: {hours: 0.2}
code: {path: code}
data: [{path: code/data}]
command: python train.py
success: {log: 'read 70000'}
"""


@pytest.mark.slow
def test_a_folder_that_git_ignores_is_sent_once_and_found_where_it_is_here(terminal: Terminal) -> None:
    code = terminal.folder / "code"
    (code / "data" / "deep").mkdir(parents=True)
    (code / "data" / "deep" / "x.bin").write_bytes(bytes(70_000))
    (code / ".gitignore").write_text("data\n")
    (code / "train.py").write_text(
        "from pathlib import Path\nprint('read', len((Path('data') / 'deep' / 'x.bin').read_bytes()))\n"
    )
    subprocess.run(["git", "init", "-q", str(code)], check=True)
    (terminal.folder / "job.yaml").write_text(LOCAL.replace("data: [{path: code/data}]\n", ""))
    warned = terminal.type("plan", "job.yaml").err
    assert "ignored by git" in warned
    assert "add data: [{path: code/data/deep/x.bin}]" in warned
    done = terminal.type("launch", "job.yaml", "--provider", "local")
    assert done.exit_code == 5
    assert "data/ is ignored by git, so it was not uploaded; add data: [{path: code/data}], then:" in done.out

    (terminal.folder / "job.yaml").write_text(LOCAL)
    plan = terminal.type("plan", "job.yaml")
    assert "1 file, 70.0 kB from this computer" in plan.out
    assert "ignored" not in plan.err
    assert terminal.type("rehearse", "job.yaml", "--box", str(terminal.folder / "box")).exit_code == 0
    held = terminal.type("hold", "job.yaml", "--slots", "2", "-d")
    assert held.exit_code == 0, held.err
    for sent in ("0.1 MB", "0.0 MB"):
        done = terminal.type("launch", "job.yaml", "--provider", "pool")
        assert done.exit_code == 0, done.err
        assert f"0.1 MB of data are there, {sent} of them sent now" in done.err
    release(terminal, "hold-local")
