"""`init`, `plan` and `launch` in a repository of somebody else run nothing of it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.terminal import VASTRUN, Terminal
from tests.emulators.vast import VastEmulator
from tests.hostile.repository import Traps, make_dirty
from tests.launcher.bundle.bundles import git

OURS = {"vastrun", "python", "git", "bash", "nvidia-smi"}
JOB = """
name: odd
resources: {gpus: 0, disk_gb: 8}
limits: {usd: 1}
code: {path: .}
command: "true"
success: {exit_code: 0}
"""


@pytest.fixture
def repository(terminal: Terminal, tmp_path: Path) -> Path:
    """Traps in all that a tool reads, and programs by the names of those that we run and import."""
    folder = terminal.folder / "repository"
    folder.mkdir()
    (folder / "train.py").write_text("import torch\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    traps = Traps(tmp_path)
    traps.set(folder)
    make_dirty(folder)
    for name in ("git", "python", "bash", "tar"):
        (folder / name).symlink_to("trap")
    shutil.copy(traps.program, folder / "trap")
    for name in ("yaml", "click", "torch", "sitecustomize", "conftest", "setup"):
        (folder / f"{name}.py").write_text(f"open({str(traps.marks / name)!r}, 'w')\n")
    (folder / "requirements.txt").write_text("numpy\n")
    os.mkfifo(folder / "pipe.py")
    (folder / "large.py").write_bytes(b"import torch\n" * 1_000_000)
    (folder / "binary.json").write_bytes(bytes(range(256)) * 4000)
    (folder / "job.yaml").write_text(JOB)
    return folder


def executed(terminal: Terminal, folder: Path, *words: str) -> set[str]:
    """Run a command in the folder, and return the programs that it and its processes started."""
    trace = terminal.folder / "trace"
    tracer = ["strace", "-f", "-qq", "-e", "trace=execve", "-o", str(trace)] if shutil.which("strace") else []
    done = subprocess.run(
        [*tracer, VASTRUN, *words], cwd=folder, env=terminal.variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    started = trace.read_text() if tracer else ""
    return set(re.findall(r'execve\("([^"]*)".*\) = 0$', started, re.MULTILINE))


@pytest.mark.parametrize("words", [("init", "train.py", "--force"), ("plan", "job.yaml")], ids=" ".join)
def test_what_only_looks_starts_git_and_nothing_of_the_repository(
    terminal: Terminal, repository: Path, words: tuple[str, ...]
) -> None:
    found = executed(terminal, repository, *words)
    assert {Path(path).name for path in found} <= OURS
    assert not [path for path in found if Path(path).is_relative_to(repository)]
    assert list((terminal.folder / "marks").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["local", "vast"])
def test_a_launch_starts_nothing_of_the_repository_but_the_command(
    terminal: Terminal, repository: Path, vast: VastEmulator, provider: str
) -> None:
    terminal.variables |= vast.variables
    found = executed(terminal, repository, "launch", "job.yaml", "-y", "--provider", provider)
    assert not [path for path in found if Path(path).is_relative_to(repository)]
    assert list((terminal.folder / "marks").iterdir()) == []
