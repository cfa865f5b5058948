"""The checkpoint to continue from is fetched from where earlier runs pushed it, if it is whole."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.boxes import run_module, write_job
from vastrun.contract import layout
from vastrun.contract.checkpoint_folder import newest_first
from vastrun.onstart.transfer.remote_checkpoints import RemoteCheckpoints, TooLargeError, step_of


def save(folder: Path, step: int, *, run: str | None = None) -> Path:
    """A whole checkpoint, of our trainer where it names the run."""
    checkpoint = folder / f"step-{step:06d}"
    (checkpoint / "shards").mkdir(parents=True)
    files = {"state.pt": b"weights after %d" % step, "shards/1": b"more"}
    if run is not None:
        files["state.json"] = json.dumps({"made_by": {"run_id": run}}).encode()
    for name, content in files.items():
        (checkpoint / name).write_bytes(content)
    sums = [
        {"path": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    ]
    (checkpoint / "manifest.json").write_text(json.dumps({"step": step, "files": sums}))
    return checkpoint


class FetchingBox:
    """A box of a job that continues others."""

    def __init__(self, folder: Path, *, pushed: Sequence[str] = (), start_from: str | None = None) -> None:
        self.folder = folder
        self.resume = folder / layout.RESUME
        self.resume.mkdir(parents=True)
        write_job(folder, pushed=pushed, start_from=start_from)

    def fetch(self) -> tuple[int, str]:
        """Exit code, and what it printed."""
        done = run_module(self.folder, "transfer.fetch")
        assert done.stderr == ""
        return done.returncode, done.stdout

    @property
    def held(self) -> list[str]:
        return sorted(path.name for path in self.resume.iterdir())


def test_the_newest_of_the_nearest_run_that_pushed_any_is_fetched(tmp_path: Path) -> None:
    save(tmp_path / "older", 90)
    for step in (20, 40):
        save(tmp_path / "near", step)
    urls = [f"file://{tmp_path / name}" for name in ("none", "near", "older")]
    box = FetchingBox(tmp_path / "box", pushed=urls, start_from="file:///nowhere")
    assert box.fetch() == (0, f"checkpoint step-000040 fetched from {urls[1]}, 0.0 MB\n")
    assert box.held == ["latest.json", "step-000040"]
    assert (box.resume / "step-000040/state.pt").read_bytes() == b"weights after 40"
    assert json.loads((box.resume / "latest.json").read_text()) == {"step": 40, "path": "step-000040"}


def test_what_came_with_the_bundle_stays_when_it_is_newer(tmp_path: Path) -> None:
    save(tmp_path / "there", 40)
    box = FetchingBox(tmp_path / "box", pushed=[f"file://{tmp_path / 'there'}"], start_from="file:///nowhere")
    save(box.resume, 60)
    assert box.fetch() == (0, "")
    assert box.held == ["step-000060"]


@pytest.mark.parametrize("step", [20, 80])
def test_a_nearer_run_counts_its_steps_anew_when_it_began_another_stage(step: int, tmp_path: Path) -> None:
    save(tmp_path / "there" / "refiner", step, run="refiner")
    box = FetchingBox(
        tmp_path / "box", pushed=[f"file://{tmp_path}/there/{run}" for run in ("refiner", "first")]
    )
    save(box.resume, 60, run="first")
    assert box.fetch()[0] == 0
    assert newest_first(box.resume)[0].name == f"step-{step:06d}"


Damage = Callable[[Path], object]
"""Done to a checkpoint, or to the folder of all."""


def with_a_first_file(**changes: Any) -> Damage:
    """Its manifest says something else of the first file."""

    def damage(checkpoint: Path) -> None:
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        manifest["files"][0].update(changes)
        (checkpoint / "manifest.json").write_text(json.dumps(manifest))

    return damage


def without_an_end(name: str) -> Damage:
    """A file goes on after its last byte, as that of a program that keeps writing."""

    def damage(checkpoint: Path) -> None:
        (checkpoint / name).unlink()
        (checkpoint / name).symlink_to("/dev/zero")

    return damage


DAMAGES: dict[str, Damage] = {
    "cut short": lambda checkpoint: (checkpoint / "state.pt").write_bytes(b"weights"),
    "not all there yet": lambda checkpoint: (checkpoint / "state.pt").unlink(),
    "without manifest": lambda checkpoint: (checkpoint / "manifest.json").unlink(),
    "leading elsewhere": with_a_first_file(path="../../../escaped"),
    "a file without end": without_an_end("state.pt"),
    "a manifest without end": without_an_end("manifest.json"),
    "more than a disk": with_a_first_file(size=10**15),
    "a file twice": with_a_first_file(path="shards/1"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_one_that_is_not_whole_is_left_for_an_older_one(damage: Damage, tmp_path: Path) -> None:
    for step in (20, 40):
        newest = save(tmp_path / "there", step)
    damage(newest)
    box = FetchingBox(tmp_path / "box", start_from=f"file://{tmp_path / 'there'}")
    code, out = box.fetch()
    assert code == 0
    assert "step-000040" in out.splitlines()[0]
    assert "is incomplete" in out.splitlines()[0]
    assert box.held == ["latest.json", "step-000020"]


STRAYS: dict[str, Damage] = {
    "an object in its name": lambda there: (there / "step-000099").write_bytes(b"stray"),
    "a number without end": lambda there: (there / f"step-{'9' * 5000}"[:250]).touch(),
    "a folder in place of its manifest": lambda there: (there / "step-000099/manifest.json").mkdir(
        parents=True
    ),
    "a manifest that lists a folder": lambda there: with_a_first_file(path="shards")(save(there, 99)),
    "a manifest that lists a name without end": lambda there: with_a_first_file(path="x" * 3000)(
        save(there, 99)
    ),
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_a_stray_object_hides_no_checkpoint(stray: Damage, tmp_path: Path) -> None:
    save(tmp_path / "there", 20)
    stray(tmp_path / "there")
    box = FetchingBox(tmp_path / "box", start_from=f"file://{tmp_path / 'there'}")
    code, out = box.fetch()
    assert (code, box.held) == (0, ["latest.json", "step-000020"]), out


def test_a_number_that_python_does_not_read_is_no_step() -> None:
    names = (f"step-{'9' * 5000}", "step-٣٣٣٣٣٣", "step-7", "step-000007\n", "step-000007")
    assert [step_of(name) for name in names] == [-1, -1, -1, -1, 7]


def test_a_file_is_given_up_at_its_listed_size(tmp_path: Path) -> None:
    there = save(tmp_path / "there", 40)
    without_an_end("state.pt")(there)
    remote = RemoteCheckpoints(f"file://{tmp_path / 'there'}")
    with pytest.raises(TooLargeError, match="is larger than 16 bytes"):
        remote.fetch("step-000040/state.pt", tmp_path / "part", 16)
    assert (tmp_path / "part").stat().st_size == 0


def test_a_checkpoint_that_the_disk_cannot_hold_is_not_begun(tmp_path: Path) -> None:
    with_a_first_file(size=10**15)(save(tmp_path / "there", 40))
    out = FetchingBox(tmp_path / "box", pushed=[f"file://{tmp_path / 'there'}"]).fetch()[1]
    assert "its manifest lists 1000000000.0 MB, but the disk has" in out


def test_without_the_checkpoint_that_it_must_start_from_a_job_does_not_begin(tmp_path: Path) -> None:
    box = FetchingBox(tmp_path / "box", pushed=["nowhere://x"], start_from=f"file://{tmp_path / 'none'}")
    code, out = box.fetch()
    assert code == 1
    assert "no checkpoint was downloaded from nowhere://x" in out
    assert "has no complete checkpoint to start from" in out.splitlines()[-1]


def test_a_run_that_pushed_nothing_is_continued_from_nothing(tmp_path: Path) -> None:
    assert FetchingBox(tmp_path / "box", pushed=[f"file://{tmp_path / 'none'}"]).fetch() == (0, "")


@pytest.mark.slow
def test_a_checkpoint_comes_back_from_a_bucket(bucket: Any, tmp_path: Path) -> None:
    for path in save(tmp_path / "saved", 60).rglob("*"):
        if path.is_file():
            key = f"demo/otter/{path.relative_to(tmp_path / 'saved')}"
            bucket.put_object(Bucket="models", Key=key, Body=path.read_bytes())
    bucket.put_object(Bucket="models", Key="demo/otter/step-000080/manifest.json", Body=b"{}")
    box = FetchingBox(tmp_path / "box", pushed=["s3://models/demo/otter"])
    code, out = box.fetch()
    assert (code, len(out.splitlines())) == (0, 2), out
    assert box.held == ["latest.json", "step-000060"]
    assert (box.resume / "step-000060/shards/1").read_bytes() == b"more"
