"""The manifest: what comes home."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from tests.onstart.supervision.launches import job_of
from tests.onstart.transfer.test_program_outputs import paths_of
from vastrun.contract import layout
from vastrun.onstart.transfer import manifest


@pytest.fixture
def box(tmp_path: Path) -> Path:
    box = tmp_path / "box"
    (box / layout.OUTPUTS).mkdir(parents=True)
    (box / layout.CODE / "results").mkdir(parents=True)
    (box / layout.JOB).write_text(json.dumps(job_of(outputs=["results/*.npz", "../run/outputs/*"])))
    return box


def paths_in(box: Path) -> list[str]:
    return paths_of(manifest.build_listing(box))


def test_a_file_is_named_by_size_and_checksum(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (box / layout.OUTPUTS / "field.bin").write_bytes(b"u")
    monkeypatch.setenv("VASTRUN_BOX", str(box))
    manifest.main()
    assert json.loads((box / layout.MANIFEST).read_text()) == {
        "files": [{"path": "run/outputs/field.bin", "size": 1, "sha256": hashlib.sha256(b"u").hexdigest()}],
        "left_out": [],
        "left_out_count": 0,
        "left_out_bytes": 0,
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


@pytest.mark.parametrize(
    "pattern", [".", "./", "", "/", "**.csv", "a/**b", "../x", "../../x", "/etc/hostname"]
)
def test_a_pattern_without_a_match_does_not_cost_the_other_outputs(pattern: str, box: Path) -> None:
    (box.parent / "x").write_text("of another run")
    (box / layout.CODE / "a.txt").write_text("a")
    named = {"outputs": [pattern, f"!{pattern}", "a.txt"], "success": {"files": [pattern]}}
    (box / layout.JOB).write_text(json.dumps(job_of(**named)))
    assert paths_in(box) == ["code/a.txt"]


def left_out(box: Path) -> dict[str, str]:
    return {each.path: each.why for each in manifest.build_listing(box).omitted()}


def test_outputs_that_are_not_downloaded_are_listed_with_why(box: Path, tmp_path: Path) -> None:
    outputs = box / layout.OUTPUTS
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "model.pt").write_text("weights")
    for name in ("a\tb", "new\nline.txt", "esc\x1b[31m.txt", "right\u202eleft", "plain \udcff.bin"):
        (outputs / name).write_text("data")
    (outputs / ".git" / "hooks").mkdir(parents=True)
    (outputs / ".git" / "config").write_text("x")
    (outputs / ".git" / "hooks" / "post-commit").write_text("x")
    (outputs / "dangling").symlink_to("missing")
    (outputs / "model.pt").symlink_to(tmp_path / "disk" / "model.pt")
    (outputs / "checkpoints").symlink_to(tmp_path / "disk")
    os.mkfifo(outputs / "fifo")
    assert paths_in(box) == ["run/outputs/plain \udcff.bin"]
    assert left_out(box) == {
        "run/outputs/.git": "version control reads files of this name",
        "run/outputs/a\\tb": "its name has control characters",
        "run/outputs/checkpoints": f"a link out of the box, to {tmp_path}/disk",
        "run/outputs/dangling": "a broken link",
        "run/outputs/esc\\x1b[31m.txt": "its name has control characters",
        "run/outputs/fifo": "not a regular file",
        "run/outputs/model.pt": f"a link out of the box, to {tmp_path}/disk/model.pt",
        "run/outputs/new\\nline.txt": "its name has control characters",
        "run/outputs/right\\u202eleft": "its name has control characters",
    }


def test_a_link_to_a_folder_of_the_box_is_listed(box: Path) -> None:
    (box / layout.CODE / "results" / "deep").mkdir()
    (box / layout.OUTPUTS / "here").symlink_to(box / layout.CODE / "results")
    assert left_out(box) == {"run/outputs/here": "a link to a folder"}


def test_files_of_ours_that_are_left_out_are_not_listed(box: Path) -> None:
    (box / layout.RUN / "odd\tname").write_text("x")
    (box / layout.RUN / "elsewhere").symlink_to("/etc/hostname")
    assert left_out(box) == {}


def test_what_the_jobs_outputs_name_is_listed_too(box: Path) -> None:
    (box / layout.CODE / "results" / "a\tb.npz").write_bytes(b"a")
    assert left_out(box) == {"code/results/a\\tb.npz": "its name has control characters"}


def test_what_proves_the_success_is_downloaded(box: Path) -> None:
    (box / layout.JOB).write_text(json.dumps(job_of(success={"files": ["results/*.pt"]})))
    (box / layout.CODE / "results" / "model.pt").write_bytes(b"w")
    assert paths_in(box) == ["code/results/model.pt"]


def test_of_too_many_files_the_last_outputs_are_listed(box: Path) -> None:
    for number in range(5):
        (box / layout.OUTPUTS / f"shard-{number}").write_text("x")
    (box / layout.STEPS).write_text("{}")
    listing = manifest.build_listing(box, max_files=3)
    assert paths_of(listing) == [*(f"run/outputs/shard-{n}" for n in (0, 1)), layout.STEPS]
    assert [each.path for each in listing.omitted()] == [f"run/outputs/shard-{n}" for n in (2, 3, 4)]


def test_a_manifest_is_not_larger_than_the_launcher_reads(box: Path) -> None:
    for number in range(20):
        (box / layout.OUTPUTS / f"{'x' * 200}{number}").write_text("x")
    listing = manifest.build_listing(box, max_bytes=1000)
    assert (len(listing.files), len(listing.left_out)) == (2, 18)


def test_all_of_many_outputs_left_out_are_counted(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(150):
        (box / layout.OUTPUTS / f"tab\t{number}").write_text("x")
    monkeypatch.setenv("VASTRUN_BOX", str(box))
    manifest.main()
    written = json.loads((box / layout.MANIFEST).read_text())
    assert (len(written["left_out"]), written["left_out_count"]) == (100, 150)
