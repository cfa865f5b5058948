"""Torn snapshots of a program that saves two files again and again."""

import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.figures import Claim, max_limit, report_claims
from tests.onstart.supervision.own_files import Watching
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import SnapshotState, newest_first

TRIALS, BYTES, NONE = 200, 160_000, max_limit(0)


def run() -> bool:
    """Print how many are torn for each kind of program."""
    with ThreadPoolExecutor() as threads:
        return all([*threads.map(_run, ("tracker", "rename", "pause", "none"))])


def _run(kind: str) -> bool:
    """Take snapshots, four times as fast as on a machine."""
    torn, taken = [0, 0], 0
    with tempfile.TemporaryDirectory() as folder:
        watching = Watching(box=Path(folder) / "box", pattern=None, every_s=6.0)
        with subprocess.Popen([sys.executable, "-m", __name__, kind, str(watching.code)]) as process:
            while taken < TRIALS:
                time.sleep(0.5)
                watching.poll(1, is_due=False)
                if (count := sum(said.endswith(" MB") for said in watching.said)) > taken:
                    taken, files = count, newest_first(watching.box / layout.CHECKPOINTS)[0] / "files/code"
                    trackers = [files / path.read_text() for path in files.glob("latest")]
                    for place in trackers or sorted(files.glob("step_*"))[-1:]:
                        is_whole = [path.stat().st_size for path in place.glob("?")] == [BYTES, BYTES]
                        torn[not SnapshotState.of(files.parents[1]).is_calm] += not is_whole
            process.kill()
    return report_claims(f"torn: {kind}", f"{torn[1]} marked   n={taken}", Claim(torn[0], "unmarked", NONE))


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    for step in itertools.count(10_000):
        place = folder / f"{'part' if kind == 'rename' else 'step'}_{step}"
        place.mkdir()
        for name in "GD":
            (place / name).write_bytes(bytes(BYTES))
            time.sleep(0.15)
        place.rename(folder / f"step_{step}")
        if kind == "tracker":
            (folder / "latest").write_text(f"step_{step}")
        shutil.rmtree(folder / f"step_{step - 3}", ignore_errors=True)
        time.sleep(0 if kind == "none" else 1)
