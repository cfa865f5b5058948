"""Programs as users bring them, and what the user is told: the verdict, the reason, what to do next."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.terminal import VASTRUN, Done, Terminal

SAVES_ON_SIGTERM = """
    import os, signal, sys, time
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    for step in range(600):
        print("step", step, flush=True)
        time.sleep(0.2)
        if asked:
            print("saving", flush=True)
            open(os.environ["VASTRUN_OUTPUTS"] + "/saved.txt", "w").write(str(step))
            sys.exit(0)
"""
LOADS = """
    import os, signal
    from torch.utils.data import DataLoader, Dataset
    class Shards(Dataset):
        def __len__(self): return 8
        def __getitem__(self, place):
            if place == 5:
                {happens}
            return float(place)
    if __name__ == "__main__":
        for batch in DataLoader(Shards(), batch_size=2, num_workers=1):
            print("batch", flush=True)
"""
FLOOD = """
    import os
    for number in range(400_000):
        print("step", number, "x" * 200)
    print("the last line", flush=True)
    if os.environ["RANK"] == "1":
        raise ValueError("failed after the flood")
"""
BAR = """
    import sys, time
    for step in range(12):
        sys.stderr.write(f"\\r{step + 1}/12 [loss=0.1]")
        sys.stderr.flush()
        time.sleep(0.5)
    print("\\nbar done")
"""
ODD_NAMES = """
    import os
    folder = os.environ["VASTRUN_OUTPUTS"]
    for name in ("plain.txt", "with space.txt", "tab\\there.txt", "line\\nbreak.txt", "escape\\x1b[31m.txt"):
        open(f"{folder}/{name}", "w").write("data")
    os.symlink("/etc/hostname", f"{folder}/other-disk")
    os.symlink("nowhere", f"{folder}/dangling")
    print("outputs made")
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program, its job, and what is to be told of it."""

    program: str = ""
    command: str = "python program.py"
    job: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files of its folder."""
    ignored: str = ""
    """A line of `.gitignore`: the folder is a checkout then."""
    exit_code: int
    says: tuple[str, ...] = ()
    """Texts that the launch or `vastrun why` prints."""
    says_not: tuple[str, ...] = ("JOB.yaml",)
    needs_torch: bool = False


CASES: Mapping[str, Case] = {
    "torchrun within two ranks": Case(
        program="import time; time.sleep(4)",
        command="torchrun --standalone --nproc_per_node=2 program.py",
        job={"ranks": 2, "success": {"log": "never printed"}, "limits": {"hours": 0.1}},
        exit_code=5,
        says=("launcher     WARNING: rank ", "2 ranks may mean 2 whole trainings", "LOCAL_RANK="),
    ),
    "a file that git ignores and the job includes": Case(
        program="open('conf/local.yaml')",
        files={"conf/local.yaml": "lr: 1"},
        ignored="conf/local.yaml",
        job={"code": {"path": "code", "include": ["conf/local.yaml"]}},
        exit_code=0,
    ),
    "names with control characters, links out": Case(
        program=ODD_NAMES,
        job={"success": {"log": "outputs made"}},
        exit_code=0,
        says=("not downloaded", "control characters", "a broken link"),
        says_not=("all outputs downloaded", "\x1b[31m.txt"),
    ),
    "a flood of lines, then a traceback": Case(
        program=FLOOD, job={"ranks": 2}, exit_code=5, says=("ValueError: failed after the flood",)
    ),
    "a port that is in use": Case(
        program="raise OSError(98, 'Address already in use: 29500')",
        exit_code=5,
        says=("Address already in use", "$MASTER_PORT"),
    ),
    "saves and exits 0 at the time limit": Case(
        program=SAVES_ON_SIGTERM,
        job={"limits": {"hours": 0.02, "start_s": 30, "stall_s": 30}},
        exit_code=9,
        says=("SIGTERM was sent",),
        says_not=("SUCCEEDED",),
    ),
    "a loader's worker is killed": Case(
        program=LOADS.format(happens="os.kill(os.getpid(), signal.SIGKILL)"),
        exit_code=5,
        says=("memory",),
        needs_torch=True,
    ),
    "a loader's worker has no shared memory": Case(
        program=LOADS.format(happens="os.kill(os.getpid(), signal.SIGBUS)"),
        exit_code=5,
        says=("/dev/shm",),
        needs_torch=True,
    ),
    "a bar of carriage returns": Case(
        program=BAR,
        job={"success": {"log": "bar done"}, "limits": {"hours": 0.1, "stall_s": 10, "start_s": 20}},
        exit_code=0,
        says=("/12 [loss=0.1]",),
    ),
    "a script with Windows line endings": Case(
        command="./go.sh",
        files={"go.sh": "#!/usr/bin/env bash\r\necho hi\r\n"},
        exit_code=5,
        says=("line endings",),
    ),
}


def write(terminal: Terminal, case: Case) -> None:
    code = terminal.folder / "code"
    files = {
        "program.py": "\n".join(line[4:] if line[:4] == "    " else line for line in case.program.split("\n"))
    }
    for name, content in {**files, **case.files}.items():
        path = code / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
        path.chmod(0o755)
    if case.ignored:
        (code / ".gitignore").write_text(f"{case.ignored}\n")
        for words in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
        ):
            subprocess.run(["git", *words], cwd=code, check=True)
    job: dict[str, Any] = {
        "name": "brought",
        "resources": {"gpus": 0, "disk_gb": 8},
        "code": {"path": "code"},
        "limits": {"hours": 0.1},
        "success": {"exit_code": 0},
        "command": case.command,
    }
    (terminal.folder / "my-job.yaml").write_text(yaml.safe_dump(job | dict(case.job)))


def typed(terminal: Terminal, case: Case) -> tuple[Done, str]:
    """The launch, and all that the user reads of it."""
    done = terminal.type("launch", "my-job.yaml", "-y")
    why = terminal.type("why", "last") if done.exit_code != 2 else done
    return done, done.err + done.out + why.out


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_user_is_told_what_happened(terminal: Terminal, name: str) -> None:
    case = CASES[name]
    if case.needs_torch:
        pytest.importorskip("torch")
    write(terminal, case)

    done, told = typed(terminal, case)

    assert done.exit_code == case.exit_code, told
    assert [text for text in case.says if text not in told] == [], told
    assert [text for text in case.says_not if text in told] == [], told
    assert terminal.leftovers() == []


@pytest.mark.slow
def test_a_launch_without_standard_streams_ends_as_any_other(terminal: Terminal, tmp_path: Path) -> None:
    write(terminal, Case(program="print('hello')", exit_code=0))
    line = 'nohup "$0" launch my-job.yaml -y <&- >&- 2>&-'
    done = subprocess.run(
        ["bash", "-c", line, VASTRUN], cwd=terminal.folder, env=terminal.variables, check=False
    )
    assert done.returncode == 0
