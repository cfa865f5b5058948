"""A real box that lies, behind the emulated Vast: its sessions, its status, its files, its log, its lease."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.fast_launcher import PRINTS, FastLauncher, job
from tests.hostile.boxes import MAX_GAP_S
from tests.hostile.deceits import DECEITS, Deceit
from tests.hostile.test_lies import assert_nothing_evil
from vastrun.launcher.core import Cause, Run, UserRequest
from vastrun.launcher.decisions.policy import INVALID_STATUS_S, LATE_GRACE_S, LIMIT_SLACK_S

LIFE_S = 600.0
"""What the job allows: half a minute here."""
ASKED_AFTER_S = 40.0
"""After the training began: the deceit is at work by then."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        *((name, UserRequest.NONE) for name in DECEITS),
        *((name, UserRequest.DESTROY) for name, deceit in DECEITS.items() if not deceit.late),
    ],
)
def test_a_deceit_comes_to_a_good_end(name: str, asked: UserRequest, tmp_path: Path) -> None:
    deceit = DECEITS[name]
    run, gpu_s, left, story = deceived(deceit, asked, tmp_path)

    assert left == 0, story
    assert run.phase == "ended", story
    assert run.cause in deceit.causes | ({Cause.STOPPED} if asked is UserRequest.DESTROY else set()), story
    assert gpu_s <= LIFE_S + LIMIT_SLACK_S + LATE_GRACE_S + INVALID_STATUS_S, story
    assert_nothing_evil(tmp_path)
    assert not Path("/tmp/evil-of-a-box").exists()
    if run.cause is None:
        assert all(proof.holds is True for proof in run.proofs), story


def deceived(deceit: Deceit, asked: UserRequest, folder: Path) -> tuple[Run, float, int, str]:
    """The run, what its machine was paid for, how many are left, and its diary."""
    program = (
        "import subprocess, time; "
        f"subprocess.run(['bash', '-c', {deceit.script!r}], cwd='..', check=True); "
        f"time.sleep({1e4 if deceit.holds else 3}); {PRINTS}"
    )
    with FastLauncher(folder, factor=20.0) as launcher:
        launcher.ask(asked, cue="50-train", after_s=ASKED_AFTER_S)
        spec = job(program, hours=LIFE_S / 3600)
        (run,) = launcher.launch(replace(spec, retry={}))
        story = "\n".join(f"{event.phase}: {event.text[:200]}" for event in launcher.screen.events)
        assert launcher.guard.calls > 0
        assert launcher.guard.longest_gap_s <= MAX_GAP_S
        (meter,) = launcher.vast.billing.meters.values()
        return (
            run,
            meter.gpu_seconds,
            len(launcher.vast.instances),
            f"{run.cause}: {run.detail[:300]}\n{story}",
        )
