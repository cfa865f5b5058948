"""The bundle, unpacked again: what a box finds in it."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.launcher.bundle.bundles import (
    SPEC,
    files_of,
    job_with,
    members,
    packed,
    run_of,
    shipped_code,
    write_files,
)
from vastrun.contract import layout
from vastrun.contract.job import Job, JobBatch, JobCheckpoints
from vastrun.contract.records import read_as, read_json
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.core import Origin
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.core.job import Checkpoints, Code, Hold, JobSpec, Limits, Secret, Success
from vastrun.trainer.job.config import TrainConfig, WandbConfig


def test_the_same_job_gives_the_same_bytes(code: Path) -> None:
    spec = job_with(code)
    with Bundler({}) as one, Bundler({}) as two:
        first = one.pack(run_of(spec), spec)
        os.utime(code / "train.py", (1, 1))
        second = two.pack(run_of(spec), spec)
        content = Path(first.path).read_bytes()
        assert content == Path(second.path).read_bytes()
        assert (first.size, first.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_a_bundle_holds_the_scripts_the_trainer_and_the_job() -> None:
    files = packed(SPEC)
    assert {
        "onstart/run.sh",
        "onstart/lease.sh",
        "pkg/vastrun/trainer/__init__.py",
        "pkg/vastrun/trainer/train.py",
    } <= set(files)
    assert {"pkg/vastrun/integrations/__init__.py", "pkg/vastrun/integrations/lightning.py"} <= set(files)
    assert {"pkg/vastrun/contract/job.py", "pkg/vastrun/onstart/boot/pip.sh"} <= set(files)
    assert {name.split("/")[0] for name in files} == {"job.json", "onstart", "pkg"}
    assert all(name.endswith((".py", ".sh", ".json", "requirements.txt")) for name in files)


def test_a_command_is_shipped_without_the_trainer_and_a_held_machine_with_what_its_slots_pin() -> None:
    own = replace(SPEC, train=None, command=("true",), success=Success(exit_code=0))
    held = replace(SPEC, train=None, hold=Hold())
    assert not [name for name in packed(own) if name.startswith("pkg/vastrun/trainer")]
    assert "pkg/vastrun/trainer/requirements.txt" in packed(held)


def test_the_scripts_may_be_executed_however_they_were_installed() -> None:
    with Bundler({}) as bundler:
        modes = {
            name: m.mode
            for name, m in members(Path(bundler.pack(run_of(SPEC), SPEC).path).read_bytes()).items()
        }
    assert modes["onstart/run.sh"] == modes["onstart/steps.d/50-train.sh"] == 0o755
    assert modes["pkg/vastrun/trainer/train.py"] == modes["job.json"] == 0o644


def test_the_box_reads_the_job_as_it_was_meant(tmp_path: Path) -> None:
    spec = replace(
        SPEC,
        train=None,
        command=("python", "a b.py"),
        success=Success(steps=3),
        env={"A": "1"},
        outputs=("x/*",),
        checkpoints=Checkpoints(files="ckpt/*", keep=3),
        ranks=2,
        limits=Limits(stall_s=5.0),
    )
    (tmp_path / layout.JOB).write_bytes(packed(spec)[layout.JOB])
    job = Job.read(tmp_path)
    assert (job.run_id, job.ranks, job.stall_s, job.program.argv) == (
        "calm-heron-3f1a",
        2,
        5.0,
        ("python", "a b.py"),
    )
    assert (job.success and job.success.steps, job.env, job.outputs) == (3, {"A": "1"}, ("x/*",))
    assert job.checkpoints == JobCheckpoints(files="ckpt/*", keep=3, every_s=60.0)
    (tmp_path / layout.JOB).write_bytes(packed(replace(spec, nodes=3, checkpoints=Checkpoints()))[layout.JOB])
    job = Job.read(tmp_path)
    assert (job.nodes, job.checkpoints) == (3, None)


def test_the_tags_of_a_job_are_those_of_its_wandb_run_too() -> None:
    def tags(**wandb: Any) -> list[str]:
        train = TrainConfig(wandb=WandbConfig(**wandb))
        job = json.loads(packed(replace(SPEC, train=train, tags=("lr", "new")))[layout.JOB])
        return list(job["program"]["config"]["wandb"]["tags"])

    assert tags(tags=("own", "new")) == ["lr", "new", "own"]
    assert tags(mode="off") == []


def test_what_was_packed_for_a_run_is_what_is_shipped(code: Path) -> None:
    spec = replace(SPEC, code=Code(path=str(code)))
    with Bundler({}) as bundler:
        planned = bundler.pack(run_of(spec), spec)
        (code / "later.py").write_text("x = 1\n")
        assert bundler.pack(run_of(spec), spec) == planned
        Path(planned.path).unlink()  # as who cleans up a folder for temporary files does
        assert bundler.pack(run_of(spec), spec) == planned
        other = replace(spec, name="another")
        assert bundler.pack(run_of(other), other).sha256 != planned.sha256


def test_the_archives_are_gone_with_the_bundler() -> None:
    with Bundler({}) as bundler:
        path = Path(bundler.pack(run_of(SPEC), SPEC).path)
        assert path.exists()
    assert not path.parent.exists()


def test_a_temporary_folder_that_cannot_be_had_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nothing"))
    with pytest.raises(StorageError, match="cannot pack the job: No such file") as caught:
        packed(SPEC)
    assert "TMPDIR" in caught.value.hint


def test_a_run_that_continues_another_gets_its_checkpoints(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    write_files(checkpoints, {"step-000010/model.pt": "weights", "latest.json": "{}", ".DS_Store": "x"})
    spec = replace(SPEC, checkpoints=Checkpoints(start_from="s3://models/zero/"))
    files = packed(spec, origin=Origin(folder=checkpoints, pushed=("s3://models/one",), continues=("one",)))
    assert files["resume/step-000010/model.pt"] == b"weights"
    assert "resume/latest.json" in files
    assert "resume/.DS_Store" not in files
    job = json.loads(files[layout.JOB])
    assert (job["pushed"], job["continues"]) == (["s3://models/one"], ["one", "zero"])
    with pytest.raises(UsageError, match="no checkpoint in"):
        packed(SPEC, origin=Origin(folder=tmp_path / "none"))


def test_of_many_checkpoints_the_two_newest_travel(tmp_path: Path) -> None:
    for step in (500, 999500, 1000000):
        write_files(tmp_path / f"step-{step:06d}", {"manifest.json": "{}", "files/own/weights": "numbers"})
    files = packed(SPEC, origin=Origin(folder=tmp_path))
    shipped = {name for name in files if name.startswith("resume/")}
    assert shipped == {
        f"resume/step-{step}/{name}"
        for step in (999500, 1000000)
        for name in ("manifest.json", "files/own/weights")
    }


def test_a_home_is_where_the_user_has_it(code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "key").write_text("abc")
    spec = replace(SPEC, code=Code(path="~/code"), secrets=(Secret(name="A", file="~/key"),))
    assert list(shipped_code(spec)) == ["run.sh", "train.py"]
    assert Bundler({}).secrets(spec) == b"A='abc'\n"
    with pytest.raises(UsageError, match="secrets: A cannot be read from ~nobody-here/key: No such file"):
        Bundler({}).secrets(replace(SPEC, secrets=(Secret(name="A", file="~nobody-here/key"),)))


def test_secrets_are_not_in_the_bundle() -> None:
    spec = replace(SPEC, secrets=(Secret(name="TOKEN"),))
    with Bundler({"TOKEN": "hunter2"}) as bundler:
        files = packed(spec)
        assert b"hunter2" in bundler.secrets(spec)
    assert not any(b"hunter2" in content for content in files.values())


def test_the_lease_is_the_script_that_is_shipped() -> None:
    assert Bundler({}).lease().encode() == packed(SPEC)["onstart/lease.sh"]


def test_a_run_of_a_batch_takes_the_values_of_its_point_to_the_box() -> None:
    asked = []

    def values_of(batch: str, point: str) -> Mapping[str, object]:
        asked.append((batch, point))
        return {"train.optim.lr": 0.003}

    run = replace(run_of(SPEC), batch="widths", point="0123456789")
    with Bundler({}, values_of=values_of) as bundler:
        job = read_json(Job, files_of(bundler.pack(run, SPEC))[layout.JOB])
    assert asked == [("widths", "0123456789")]
    assert job.batch == JobBatch(name="widths", values={"train.optim.lr": 0.003})


def test_a_run_of_no_batch_and_the_job_of_a_box_of_before_have_none() -> None:
    job = json.loads(packed(SPEC)[layout.JOB])
    assert job.pop("batch") is None
    assert read_json(Job, json.dumps(job)).batch is None


def test_what_a_job_on_a_machine_leaves_out_is_as_a_job_file_leaves_it_out() -> None:
    short = {"run_id": "calm-heron-3f1a", "ranks": 1, "program": {"kind": "x"}, "stall_s": 30, "start_s": 30}
    job = read_as(Job, {**short, "checkpoints": {"files": "*.pt"}})
    spec, saves = JobSpec(name="program"), Checkpoints()
    assert isinstance(job, Job) and job.checkpoints is not None
    assert (job.outputs, job.outputs_gb, job.nodes) == (spec.outputs, spec.outputs_gb, spec.nodes)
    assert (job.restarts, dict(job.env), job.data) == (spec.restarts, dict(spec.env), spec.data)
    assert (job.checkpoints.keep, job.checkpoints.every_s) == (saves.keep, saves.every_s)
