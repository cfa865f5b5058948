"""The bundle, unpacked again: what a box finds in it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rights import like_anybody
from vastrun.contract import layout
from vastrun.contract.config import TrainConfig, WandbConfig
from vastrun.contract.job import Job, JobBatch, JobCheckpoints
from vastrun.contract.records import read_json
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.bundle.checkout import LIMIT_BYTES
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import NOTHING, Origin, Phase, Run
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.core.job import Checkpoints, Code, JobSpec, Limits, Secret, Success
from vastrun.launcher.outputs.store import FolderStore
from vastrun.trainer.distributed.rank import TrainJob

SPEC = JobSpec(name="job", train=TrainConfig(steps=7))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def job_with(code: Path, *exclude: str) -> JobSpec:
    return replace(SPEC, code=Code(path=str(code), exclude=exclude))


def run_of(spec: JobSpec, out_dir: str = "/nowhere") -> Run:
    return Run(
        id="calm-heron-3f1a",
        job=spec.name,
        spec_json=dump_job(spec),
        provider="local",
        phase=Phase.PLAN,
        out_dir=out_dir,
        created_at=0.0,
        phase_at=0.0,
    )


def members(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {entry.name: entry for entry in tar}


def packed(spec: JobSpec, *, out_dir: str = "/nowhere", origin: Origin = NOTHING) -> Mapping[str, bytes]:
    """Every file of the bundle."""
    with Bundler({}, origin=origin) as bundler:
        bundle = bundler.pack(run_of(spec), spec)
        with tarfile.open(bundle.path) as tar:
            return {entry.name: reader.read() for entry in tar if (reader := tar.extractfile(entry))}


def shipped_code(spec: JobSpec) -> dict[str, tarfile.TarInfo]:
    return members(packed(spec)[layout.CODE_ARCHIVE])


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def checkout(code: Path) -> Path:
    git(code, "init", "-q")
    (code / ".gitignore").write_text("*.log\n")
    git(code, "add", ".")
    git(code, "commit", "-qm", "first")
    return code


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
    assert {"pkg/vastrun/contract/job.py", "pkg/vastrun/trainer/boot/pip.sh"} <= set(files)
    assert {name.split("/")[0] for name in files} == {"job.json", "onstart", "pkg"}
    assert all(name.endswith((".py", ".sh", ".json", "requirements.txt")) for name in files)


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
        nodes=3,
        limits=Limits(stall_s=5.0),
    )
    (tmp_path / layout.JOB).write_bytes(packed(spec)[layout.JOB])
    job = Job.read(tmp_path)
    assert (job.run_id, job.ranks, job.nodes, job.stall_s, job.command) == (
        "calm-heron-3f1a",
        2,
        3,
        5.0,
        ("python", "a b.py"),
    )
    assert (job.success and job.success.steps, job.env, job.outputs) == (3, {"A": "1"}, ("x/*",))
    assert job.checkpoints == JobCheckpoints(files="ckpt/*", keep=3, every_s=60.0)


def test_the_tags_of_a_job_are_those_of_its_wandb_run_too() -> None:
    def tags(**wandb: Any) -> list[str]:
        train = TrainConfig(wandb=WandbConfig(**wandb))
        job = json.loads(packed(replace(SPEC, train=train, tags=("lr", "new")))[layout.JOB])
        return list(job["train"]["wandb"]["tags"])

    assert tags(tags=("own", "new")) == ["lr", "new", "own"]
    assert tags(mode="off") == []


def test_what_was_packed_for_a_run_is_what_is_shipped(code: Path) -> None:
    spec = replace(SPEC, code=Code(path=str(code)))
    with Bundler({}) as bundler:
        planned = bundler.pack(run_of(spec), spec)
        (code / "later.py").write_text("x = 1\n")
        assert bundler.pack(run_of(spec), spec) == planned
        Path(planned.path).unlink()  # as who cleans up a folder for temporary files does
        anew = bundler.pack(run_of(spec), spec)
        assert anew.sha256 != planned.sha256
        other = replace(spec, name="another")
        assert bundler.pack(run_of(other), other).sha256 != anew.sha256


def test_the_archives_are_gone_with_the_bundler() -> None:
    with Bundler({}) as bundler:
        path = Path(bundler.pack(run_of(SPEC), SPEC).path)
        assert path.exists()
    assert not path.parent.exists()


def test_without_git_all_but_caches_and_outputs_is_code(code: Path) -> None:
    for name in (
        ".venv/x.py",
        "runs/a/log",
        "__pycache__/t.pyc",
        "node_modules/a.js",
        "env/pyvenv.cfg",
        "pkg/.DS_Store",
        "pkg/a.py",
    ):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("x")
    shipped = shipped_code(job_with(code))
    assert list(shipped) == ["pkg/a.py", "run.sh", "train.py"]
    assert (shipped["run.sh"].mode, shipped["train.py"].mode) == (0o755, 0o644)


def test_in_a_checkout_the_code_is_what_git_tracks_or_would_track(checkout: Path) -> None:
    (checkout / "new.py").write_text("x")
    (checkout / "big.log").write_text("x")
    (checkout / "runs").mkdir()
    (checkout / "runs" / "old").write_text("x")
    (checkout / "run.sh").unlink()
    assert list(shipped_code(job_with(checkout))) == [".gitignore", "new.py", "train.py"]


def test_what_the_finder_leaves_is_no_code_though_git_tracks_it(checkout: Path) -> None:
    (checkout / ".DS_Store").write_text("x")
    git(checkout, "add", ".DS_Store")
    assert ".DS_Store" not in shipped_code(job_with(checkout))


def test_the_job_says_at_which_commit_the_code_stands(checkout: Path) -> None:
    clean = json.loads(packed(job_with(checkout))[layout.JOB])["code"]
    (checkout / "train.py").write_text("changed")
    dirty = json.loads(packed(job_with(checkout))[layout.JOB])["code"]
    assert (clean["dirty"], dirty["dirty"]) == (False, True)
    assert clean["commit"] == dirty["commit"]
    assert len(clean["commit"]) == 40


def test_a_folder_inside_a_checkout_ships_only_itself(checkout: Path) -> None:
    (checkout / "part").mkdir()
    (checkout / "part" / "a.py").write_text("x")
    assert list(shipped_code(job_with(checkout / "part"))) == ["a.py"]


def test_a_checkout_that_git_cannot_read_is_not_taken_for_a_plain_folder(checkout: Path) -> None:
    (checkout / ".git" / "HEAD").unlink()
    with pytest.raises(UsageError, match="git cannot read"):
        packed(job_with(checkout))


def test_a_folder_that_git_ignores_says_so(checkout: Path) -> None:
    (checkout / "part").mkdir()
    (checkout / "part" / "a.log").write_text("x")
    with pytest.raises(UsageError, match="has no file to upload") as caught:
        packed(job_with(checkout / "part"))
    assert caught.value.hint == "git ignores everything in it"


def test_a_submodule_is_shipped_with_its_files(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "lib.py").write_text("x")
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-qm", "first")
    git(checkout, "submodule", "add", "-q", str(other), "vendor/other")
    assert "vendor/other/lib.py" in shipped_code(job_with(checkout))
    git(checkout, "submodule", "deinit", "-q", "-f", "vendor/other")
    assert "vendor/other/lib.py" not in shipped_code(job_with(checkout))


def test_what_is_excluded_stays_here(code: Path) -> None:
    for name in ("data/a/b.bin", "keep/model.pt", "keep/a.py"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("x")
    assert list(shipped_code(job_with(code, "data", "*.pt", "run.sh"))) == ["keep/a.py", "train.py"]


@pytest.mark.parametrize("folder", ["code", "checkout"])
def test_what_earlier_runs_brought_home_is_not_shipped(folder: str, request: pytest.FixtureRequest) -> None:
    code = request.getfixturevalue(folder)
    out = code / "results" / "calm-heron"
    FolderStore().check(run_of(SPEC, str(out)))
    (out / "run.log").write_text("x")
    assert not [name for name in shipped_code(job_with(code)) if name.startswith("results")]


def test_a_link_inside_the_code_stays_a_link(code: Path) -> None:
    (code / "link.py").symlink_to(code / "train.py")
    link = shipped_code(job_with(code))["link.py"]
    assert (link.issym(), link.linkname) == (True, "train.py")


def test_a_link_that_leads_out_of_the_code_is_refused(code: Path) -> None:
    (code / "secret").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match="secret points out of the code folder, to /etc/hostname"):
        packed(job_with(code))
    assert "secret" not in shipped_code(job_with(code, "secret"))


def test_a_link_that_goes_in_a_circle_does_not_hang(code: Path) -> None:
    (code / "a").symlink_to("b")
    (code / "b").symlink_to("a")
    assert {"a", "b"} <= set(shipped_code(job_with(code)))


def test_too_much_code_names_its_largest_part(code: Path) -> None:
    (code / "data").mkdir()
    with (code / "data" / "train.h5").open("wb") as file:
        file.truncate(LIMIT_BYTES + 1)
    with pytest.raises(UsageError, match=r"500 MB; the largest part is data with 500 MB") as caught:
        packed(job_with(code))
    assert "exclude: [data]" in caught.value.hint


def test_a_file_that_cannot_be_read_is_named(code: Path) -> None:
    (code / "train.py").chmod(0)
    with like_anybody(), pytest.raises(UsageError, match=r"cannot read .*/train.py: Permission denied"):
        packed(job_with(code))


def test_no_code_to_ship_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        packed(job_with(tmp_path / "nothing"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has no file to upload"):
        packed(job_with(tmp_path / "empty"))


def test_a_temporary_folder_that_cannot_be_had_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nothing"))
    with pytest.raises(StorageError, match="cannot pack the job: No such file") as caught:
        packed(SPEC)
    assert "TMPDIR" in caught.value.hint


def test_a_run_that_continues_another_gets_its_checkpoints(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "step-000010").mkdir(parents=True)
    (checkpoints / "step-000010" / "model.pt").write_bytes(b"weights")
    (checkpoints / "latest.json").write_text("{}")
    (checkpoints / ".DS_Store").write_text("of the Finder")
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
        folder = tmp_path / f"step-{step:06d}"
        (folder / "files/own").mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
        (folder / "files/own/weights").write_bytes(b"numbers")
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


@pytest.mark.parametrize("place", ["code", "checkout"])
def test_the_files_of_secrets_stay_here_though_they_lie_in_the_code(
    place: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(place)
    (folder / ".env").write_text("TOKEN=hunter2\n")
    (folder / "key.txt").write_text("hunter2\n")
    (folder / "link.txt").symlink_to(folder / "key.txt")
    (folder / "sub").mkdir()
    (folder / "sub" / ".env").write_text("harmless=1\n")
    secrets = (
        Secret(name="TOKEN", env_file=str(folder / "sub" / ".." / ".env")),
        Secret(name="KEY", file=str(folder / "key.txt")),
    )
    spec = replace(job_with(folder), secrets=secrets)
    Bundler({}).check(spec)
    names = shipped_code(spec).keys()
    assert "sub/.env" in names and "train.py" in names
    assert names.isdisjoint({".env", "key.txt", "link.txt"})


def test_the_lease_is_the_script_that_is_shipped() -> None:
    assert Bundler({}).lease().encode() == packed(SPEC)["onstart/lease.sh"]


def test_a_run_of_a_batch_takes_the_values_of_its_point_to_the_box() -> None:
    asked = []

    def values_of(batch: str, point: str) -> Mapping[str, object]:
        asked.append((batch, point))
        return {"train.optim.lr": 0.003}

    run = replace(run_of(SPEC), batch="widths", point="0123456789")
    with Bundler({}, values_of=values_of) as bundler, tarfile.open(bundler.pack(run, SPEC).path) as tar:
        reader = tar.extractfile(layout.JOB)
        assert reader is not None
        job = read_json(Job, reader.read())
    assert asked == [("widths", "0123456789")]
    assert job.batch == JobBatch(name="widths", values={"train.optim.lr": 0.003})


def test_a_run_of_no_batch_and_the_job_of_a_box_of_before_have_none() -> None:
    job = json.loads(packed(SPEC)[layout.JOB])
    assert job.pop("batch") is None
    assert read_json(Job, json.dumps(job)).batch is None
    assert read_json(TrainJob, json.dumps(job)).batch is None
