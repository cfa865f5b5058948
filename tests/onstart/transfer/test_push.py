"""Checkpoints that a box pushes by itself: to a folder, and to a real S3 API on loopback."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.boxes import run_module, write_job
from tests.onstart.transfer.test_fetch import save
from tests.torch_builds import STUB_TORCH
from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.onstart.transfer.remote_checkpoints import RemoteCheckpoints

RUN_ID = "calm-heron-3f1a"
ROOT = Path(layout.__file__).parents[2]


class PushingBox:
    """A box whose job names a URL; `push` does what its supervisor does at the end."""

    def __init__(self, folder: Path, url: str, **job: Any) -> None:
        self.folder = folder
        self.checkpoints = folder / layout.CHECKPOINTS
        write_job(folder, ranks=1, push=url, **job)

    def save(self, step: int) -> Path:
        return save(self.checkpoints, step)

    def push(self) -> tuple[int, str]:
        """Exit code, and what it printed."""
        done = run_module(self.folder, "transfer.push", str(os.getpid()), "once")
        return done.returncode, done.stdout


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


@pytest.fixture
def box(tmp_path: Path, there: Path) -> PushingBox:
    return PushingBox(tmp_path / "box", f"file://{there}")


def stored(there: Path) -> list[str]:
    return sorted(path.name for path in (there / RUN_ID).glob("step-*"))


def latest(there: Path) -> Any:
    return json.loads((there / RUN_ID / "latest.json").read_text())


def test_a_checkpoint_lies_at_the_url_as_on_the_box(box: PushingBox, there: Path) -> None:
    box.save(20)
    code, out = box.push()
    assert (code, out.strip()) == (0, f"checkpoint step-000020 pushed to file://{there}/{RUN_ID}")
    pushed = there / RUN_ID / "step-000020"
    names = sorted(path.relative_to(pushed).as_posix() for path in pushed.rglob("*") if path.is_file())
    assert names == ["manifest.json", "shards/1", "state.pt"]
    assert (pushed / "state.pt").read_bytes() == b"weights after 20"
    assert latest(there) == {"step": 20, "path": "step-000020"}


def test_a_snapshot_of_more_files_than_a_process_can_open_is_whole(box: PushingBox, there: Path) -> None:
    box.save(20)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for number in range(100):
        (box.checkpoints / f"step-000020/shards/{number}").write_bytes(b"%d" % number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        code, out = box.push()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (code, latest(there)["step"]) == (0, 20), out
    assert len([*(there / RUN_ID / "step-000020/shards").iterdir()]) == 100
    assert not [*(box.folder / "tmp").iterdir()]


def test_what_is_there_is_not_pushed_again_and_the_last_two_stay(box: PushingBox, there: Path) -> None:
    for step in (20, 40, 60):
        box.save(step)
        assert box.push()[0] == 0
    assert box.push() == (0, "")
    assert stored(there) == ["step-000040", "step-000060"]


def test_files_that_did_not_change_are_copied_at_the_url(box: PushingBox, there: Path) -> None:
    for step in (20, 40):
        folder = box.save(step)
        if step == 40:
            (folder / "shards/1").write_bytes(b"is not sent")
        assert box.push()[0] == 0
    pushed = there / RUN_ID / "step-000040"
    assert (pushed / "state.pt").read_bytes() == b"weights after 40"
    assert (pushed / "shards/1").read_bytes() == b"more"


def test_strays_of_higher_steps_push_out_no_checkpoint_and_stay(box: PushingBox, there: Path) -> None:
    for stray in ("step-999998", "step-999999"):
        (there / RUN_ID / stray).mkdir(parents=True)
        (there / RUN_ID / stray / "file").touch()
    for step in (20, 40, 60):
        box.save(step)
        code, out = box.push()
        assert code == 0, out
    assert stored(there) == ["step-000040", "step-000060", "step-999998", "step-999999"]


def test_the_last_checkpoint_of_each_stage_is_pushed_and_stays(tmp_path: Path, there: Path) -> None:
    stages = {"stages": ["operator", "refine"], "steps": 40}
    box = PushingBox(tmp_path / "box", f"file://{there}", command=None, train=stages)
    for step in (20, 40, 60):  # the second one while the first was on its way
        box.save(step)
    said = [f"checkpoint step-0000{step} pushed to file://{there}/{RUN_ID}" for step in (40, 60)]
    assert box.push() == (0, "".join(f"{line}\n" for line in said))
    for step in (70, 80):
        box.save(step)
        assert box.push()[0] == 0
    assert stored(there) == ["step-000040", "step-000070", "step-000080"]
    assert latest(there)["step"] == 80


def test_without_a_checkpoint_there_is_nothing_to_push(box: PushingBox, there: Path) -> None:
    assert box.push() == (0, "")
    assert not there.exists()


def test_one_that_was_removed_meanwhile_leaves_the_older_one_in_place(box: PushingBox, there: Path) -> None:
    box.save(20)
    box.push()
    box.save(40)
    shutil.rmtree(box.checkpoints / "step-000040")
    assert box.push() == (0, "")
    assert latest(there)["step"] == 20


@pytest.mark.parametrize(
    ("url", "said"),
    [("nowhere://x", "nowhere"), ("file:///proc/here", "/proc/here")],
    ids=["unknown protocol", "no right to write"],
)
def test_a_push_that_fails_is_one_line(url: str, said: str, tmp_path: Path) -> None:
    box = PushingBox(tmp_path / "box", url)
    box.save(20)
    code, out = box.push()
    assert code == 1
    assert out.startswith("cannot push checkpoints to")
    assert said in out
    assert len(out.splitlines()) == 1


def test_new_checkpoints_are_pushed_while_the_training_goes_on(box: PushingBox, there: Path) -> None:
    command = [sys.executable, "-m", "vastrun.onstart.transfer.push", str(os.getpid())]
    process = subprocess.Popen(command, env=os.environ | {"VASTRUN_BOX": str(box.folder)})
    try:
        for step in (20, 40):
            box.save(step)
            eventually_latest(there, step)
    finally:
        process.kill()
        process.wait()


def eventually_latest(there: Path, step: int) -> None:
    pushed = RemoteCheckpoints(f"file://{there}/{RUN_ID}")
    eventually(lambda: pushed.latest() == f"step-{step:06d}", what=f"a push of step {step}")


@pytest.mark.slow
def test_a_bucket_gets_the_last_two_and_the_name_of_the_newest(bucket: Any, tmp_path: Path) -> None:
    box = PushingBox(tmp_path / "box", "s3://models/demo")
    for step in (20, 40, 60):
        box.save(step)
        code, out = box.push()
        assert code == 0, out
    keys = [entry["Key"] for entry in bucket.list_objects_v2(Bucket="models")["Contents"]]
    assert [key for key in keys if key.endswith("state.pt")] == [
        f"demo/{RUN_ID}/step-000040/state.pt",
        f"demo/{RUN_ID}/step-000060/state.pt",
    ]
    named = bucket.get_object(Bucket="models", Key=f"demo/{RUN_ID}/latest.json")["Body"].read()
    assert json.loads(named)["path"] == "step-000060"


def test_a_bucket_that_is_not_there_is_one_line(bucket: Any, tmp_path: Path) -> None:
    box = PushingBox(tmp_path / "box", "s3://elsewhere/demo")
    box.save(20)
    code, out = box.push()
    assert (code, len(out.splitlines())) == (1, 1), out


def test_a_supervisor_whose_box_is_a_relative_path_pushes_the_last_checkpoint(
    tmp_path: Path, there: Path
) -> None:
    box = PushingBox(tmp_path / "box", f"file://{there}", command=["true"])
    (box.folder / layout.CODE).mkdir()
    box.save(20)
    path, python = f"{STUB_TORCH}:{ROOT}", (sys.executable, "-P")
    done = run_module(Path("box"), "supervise", python=python, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert latest(there) == {"step": 20, "path": "step-000020"}
