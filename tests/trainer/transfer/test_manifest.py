"""The manifest: what comes home."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.trainer.supervision.launches import job_of
from trainer.contract import layout
from trainer.transfer import manifest


@pytest.fixture
def box(tmp_path: Path) -> Path:
    box = tmp_path / "box"
    (box / layout.OUTPUTS).mkdir(parents=True)
    (box / layout.CODE / "results").mkdir(parents=True)
    (box / layout.JOB).write_text(json.dumps(job_of(outputs=["results/*.npz", "../run/outputs/*"])))
    return box


def paths_in(box: Path) -> list[str]:
    return [file.path for file in manifest.file_sums(box)]


def test_a_file_is_named_by_size_and_checksum(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (box / layout.OUTPUTS / "field.bin").write_bytes(b"u")
    monkeypatch.setenv("VASTRUN_BOX", str(box))
    assert manifest.main() == 0
    assert json.loads((box / layout.MANIFEST).read_text()) == {
        "files": [
            {"path": "run/outputs/field.bin", "size": 1, "sha256": hashlib.sha256(b"u").hexdigest()},
        ]
    }


def test_the_jobs_outputs_come_home_each_file_once(box: Path) -> None:
    (box / layout.CODE / "results" / "a.npz").write_bytes(b"a")
    (box / layout.CODE / "results" / "notes.txt").write_bytes(b"not asked for")
    (box / layout.OUTPUTS / "b.npz").write_bytes(b"b")
    assert paths_in(box) == ["code/results/a.npz", "run/outputs/b.npz"]


def test_what_is_still_written_or_half_written_is_left_out(box: Path) -> None:
    for name in (layout.LOG, layout.EXIT, layout.MANIFEST, "run/.status.json.17.part", layout.STATUS):
        (box / name).write_text("text")
    (box / layout.CHECKPOINTS / ".step-000010.part").mkdir(parents=True)
    (box / layout.CHECKPOINTS / ".step-000010.part" / "state.pt").write_text("half")
    assert paths_in(box) == [layout.STATUS]


def test_a_link_out_of_the_box_does_not_come_home(box: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (box / layout.OUTPUTS / "leak").symlink_to(tmp_path / "secret")
    (box / layout.OUTPUTS / "step-10.pt").write_text("state")
    (box / layout.OUTPUTS / "newest.pt").symlink_to("step-10.pt")
    (box / layout.OUTPUTS / "broken").symlink_to("no-such-file")
    assert paths_in(box) == ["run/outputs/newest.pt", "run/outputs/step-10.pt"]


def test_without_a_job_the_run_still_comes_home(box: Path) -> None:
    (box / layout.JOB).write_text("{")
    (box / layout.STEPS).write_text("{}")
    assert paths_in(box) == [layout.STEPS]
