"""Commands work where standard streams are closed, as cron and `nohup vastrun ... <&- 2>&-` leave them."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torch_builds import STUB_TORCH
from tests.waiting import LONGEST_S

CLOSED = ["<&-", ">&-", "2>&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]
JOB = """\
name: own
resources: {gpus: 0, disk_gb: 8}
limits: {hours: 0.1}
command: 'true'
success: {exit_code: 0}
"""
COMMANDS = [
    ("plan job.yaml", 0),
    ("launch job.yaml --dry-run", 0),
    ("status", 0),
    ("status --json", 0),
    ("logs last", 2),
    ("launch nosuch.yaml", 2),
    ("nosuchcommand", 2),
    ("--help", 0),
]
_MAIN = "from vastrun.launcher.cli import main; main()"


def typed(folder: Path, command: str, closed: str) -> subprocess.CompletedProcess[str]:
    """The command, of a shell that has closed its streams."""
    (folder / "job.yaml").write_text(JOB)
    homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CACHE", "CONFIG")}
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {command} {closed}', sys.executable, _MAIN],
        cwd=folder,
        env={**os.environ, **homes, "VASTRUN_PROVIDER": "local", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("closed", CLOSED)
def test_a_command_does_the_same_with_closed_streams(tmp_path: Path, closed: str) -> None:
    for command, code in COMMANDS:
        done = typed(tmp_path, command, closed)
        assert done.returncode == code, (command, done)
        assert "Traceback" not in done.stdout + done.stderr
        assert "NoneType" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_a_run_is_driven_to_its_end_with_closed_streams(tmp_path: Path, closed: str) -> None:
    done = typed(tmp_path, f"launch job.yaml --set env.PYTHONPATH={STUB_TORCH}", closed)
    assert done.returncode == 0, done
    # What was written to stderr is not in the ledger, which may have had its descriptor.
    with sqlite3.connect(tmp_path / "STATE/vastrun/ledger.db") as ledger:
        assert ledger.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert ledger.execute("SELECT count(*) FROM runs").fetchone() == (1,)
