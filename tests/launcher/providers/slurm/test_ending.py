"""A job that is over, and whose programs are still being ended: its box stays meanwhile, and no longer."""

import os
from pathlib import Path

import pytest

from tests.fakes import FakeClock
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.providers.slurm import SlurmProvider

INSTANCE = "calm-heron-3f1a.00000000"
SQUEUE = f"""\
#!/bin/bash
# The first looks, as many as `ends_after` says, find the job COMPLETING. Notes whether the box is there.
cd "${{0%/*}}"
[[ -d boxes/{INSTANCE} ]] && echo box >>looks || echo none >>looks
(($(grep -c . looks) > $(<ends_after))) ||
  echo '7|COMPLETING|0:04|1800000000|N/A|1|n1|None|vastrun-{INSTANCE}|vastrun-calm-heron-3f1a'
"""


@pytest.mark.parametrize(("ends_after", "waited_s"), [(5, 1.2), (1000, 15.3)], ids=["in a while", "never"])
def test_a_box_is_removed_when_the_programs_have_ended_or_a_silent_node_does_not_say(
    tmp_path: Path, ends_after: int, waited_s: float
) -> None:
    box = tmp_path / "boxes" / INSTANCE
    box.mkdir(parents=True)
    squeue = tmp_path / "squeue"
    squeue.write_text(SQUEUE)
    squeue.chmod(0o755)
    (tmp_path / "ends_after").write_text(str(ends_after))
    clock = FakeClock(0.0)
    settings = SlurmSettings(folder=str(box.parent))
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    provider = SlurmProvider(settings, tmp_path, environ, "python3", clock=clock, uptime=clock.now)

    provider.destroy(INSTANCE)

    assert clock.now() == pytest.approx(waited_s, abs=0.35)  # to one look
    assert set((tmp_path / "looks").read_text().split()) == {"box"}
    assert not box.exists()
