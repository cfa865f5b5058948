"""What a step takes is asked of a Python that may have no torch, once, and never believed unread."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.jobs import command_job, train_job, workloads
from vastrun.launcher.bundle.checkout import LIMIT_BYTES
from vastrun.launcher.commands.estimate import EstimateError, WorkloadEstimator, try_model
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import Code, JobSpec, Resources
from vastrun.trainer.job.config import ModelConfig, TrainConfig

JOB = train_job(resources=Resources(gpus=1))
WHOLE = json.dumps(asdict(workloads()))


def estimator(folder: Path, script: str) -> WorkloadEstimator:
    python = folder / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    return WorkloadEstimator(
        python=str(python), environment={"PATH": "/usr/bin:/bin"}, cache=folder / "cache"
    )


def test_an_answer_is_kept_so_that_the_next_one_needs_no_process(tmp_path: Path) -> None:
    first = estimator(tmp_path, f"cat >/dev/null; echo '{WHOLE}'")
    assert first.known(JOB) is None
    assert first.workloads(JOB) == workloads()
    assert estimator(tmp_path, "exit 1").workloads(JOB) == workloads()


def test_another_torch_is_asked_anew(tmp_path: Path) -> None:
    asked = estimator(tmp_path, f"cat >/dev/null; echo '{WHOLE}'")
    asked.workloads(JOB)
    (tmp_path / "lib/python3.12/site-packages/torch-2.14.0.dist-info").mkdir(parents=True)
    assert asked.known(JOB) is None


def test_without_torch_one_line_says_what_brings_it(tmp_path: Path) -> None:
    asked = estimator(tmp_path, "cat >/dev/null; echo \"No module named 'torch'\" >&2; exit 1")
    with pytest.raises(EstimateError, match=r"has no torch; .* -m pip install .*'torch<2.16,>=2.11'"):
        asked.workloads(JOB)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("", "not JSON"),
        (WHOLE[:-30], "not JSON"),
        (WHOLE + " " * 70_000, "more than 65536 bytes"),
        ("[" * 60_000, "not JSON"),
        ("{}", "parameters: is missing"),
        (json.dumps(asdict(workloads()) | {"workloads": []}), "workloads: expected a length of at least 1"),
        (WHOLE.replace("48", "-1"), r"workloads\[0\].micro_batch: expected at least 1"),
        (WHOLE.replace("30000000000", str(1 << 61)), r"workloads\[0\].peak.activations: expected"),
        (WHOLE.replace("1000000000000.0", "NaN"), "NaN"),
        (WHOLE.replace("1000000000000.0", "1e999"), r"workloads\[0\].flops: expected"),
    ],
    ids=lambda text: text[:40].replace(" ", "-"),
)
def test_an_answer_that_is_none_is_refused_and_not_kept(tmp_path: Path, answer: str, fault: str) -> None:
    asked = estimator(tmp_path, f"cat >/dev/null; echo '{answer}'")
    with pytest.raises(EstimateError, match=f"gave no answer: .*{fault}"):
        asked.workloads(JOB)
    assert asked.known(JOB) is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("kept", [WHOLE[:-30], WHOLE + " " * 70_000, WHOLE.replace("48", "-1")])
def test_a_kept_answer_that_came_to_harm_is_asked_for_again(tmp_path: Path, kept: str) -> None:
    asked = estimator(tmp_path, f"cat >/dev/null; echo '{WHOLE}'")
    asked.workloads(JOB)
    (file,) = (tmp_path / "cache").iterdir()
    file.write_text(kept)
    assert asked.known(JOB) is None
    assert asked.workloads(JOB) == workloads()
    assert asked.known(JOB) == workloads()


OWN_MODEL = "train.model.name: mymodel:Net"


def own_model(folder: Path) -> JobSpec:
    code = folder / "code"
    code.mkdir()
    (code / "mymodel.py").write_text("class Net: ...\n")
    train = TrainConfig(model=ModelConfig(name="mymodel:Net"))
    return replace(JOB, train=train, code=Code(path=str(code)))


def test_an_answer_for_a_users_model_is_kept_until_the_code_changes(tmp_path: Path) -> None:
    spec = own_model(tmp_path)
    asked = estimator(tmp_path, f"cat >'{tmp_path}/query'; echo '{WHOLE}'")
    assert asked.workloads(spec) == workloads()
    assert json.loads((tmp_path / "query").read_text())["code"] == str(tmp_path / "code")
    assert asked.known(spec) == workloads()
    (tmp_path / "code" / "layers.py").write_text("WIDTH = 64\n")
    assert asked.known(spec) is None


def test_files_that_the_job_excludes_do_not_keep_its_model_from_being_tried(tmp_path: Path) -> None:
    spec, notes = own_model(tmp_path), list[str]()
    assert spec.code is not None
    with (tmp_path / "code" / "data.bin").open("wb") as data:
        data.truncate(LIMIT_BYTES + 1)
    spec = replace(spec, code=replace(spec.code, exclude=("data.bin",)))
    asked = estimator(tmp_path, f"cat >/dev/null; echo '{WHOLE}'")
    assert asked.known(spec) is None
    try_model(asked, spec, free=False, note=notes.append)
    assert asked.known(spec) == workloads()
    assert notes == []


def test_an_edit_of_a_file_that_the_job_includes_asks_anew(tmp_path: Path) -> None:
    spec = own_model(tmp_path)
    assert spec.code is not None
    (tmp_path / "code" / "runs").mkdir()
    layers = tmp_path / "code" / "runs" / "layers.py"
    layers.write_text("WIDTH = 64")
    spec = replace(spec, code=replace(spec.code, include=("runs/layers.py",)))
    asked = estimator(tmp_path, f"cat >/dev/null; echo '{WHOLE}'")
    asked.workloads(spec)
    assert asked.known(spec) == workloads()
    layers.write_text("WIDTH = 65")
    assert asked.known(spec) is None


def test_of_an_earlier_job_whose_code_was_removed_nothing_is_known(tmp_path: Path) -> None:
    spec = own_model(tmp_path)
    asked = estimator(tmp_path, f"cat >/dev/null; echo '{WHOLE}'")
    asked.workloads(spec)
    shutil.rmtree(tmp_path / "code")
    assert asked.known(spec) is None


def test_a_users_model_that_cannot_be_trained_is_an_error_before_anything_is_paid(tmp_path: Path) -> None:
    spec, notes = own_model(tmp_path), list[str]()
    wrong = estimator(tmp_path, f"cat >/dev/null; echo 'workload: {OWN_MODEL} returned None' >&2; exit 2")
    with pytest.raises(JobValueError, match=f"{OWN_MODEL} returned None"):
        try_model(wrong, spec, free=False, note=notes.append)
    try_model(wrong, spec, free=True, note=notes.append)
    try_model(wrong, JOB, free=False, note=notes.append)
    assert notes == []


def test_what_this_computer_cannot_tell_of_a_users_model_is_a_note(tmp_path: Path) -> None:
    spec, notes = own_model(tmp_path), list[str]()
    lacks = "workload: cannot import mymodel: No module named 'neuralop'"
    unknown = estimator(tmp_path, f'cat >/dev/null; echo "{lacks}" >&2; exit 1')
    try_model(unknown, spec, free=False, note=notes.append)
    without_torch = estimator(tmp_path, "cat >/dev/null; echo \"No module named 'torch'\" >&2; exit 1")
    try_model(without_torch, spec, free=False, note=notes.append)
    assert notes[0].startswith("mymodel:Net was not tried on this computer: cannot import mymodel")
    assert "has no torch; " in notes[1]


def test_a_program_of_the_users_own_is_not_asked_for(tmp_path: Path) -> None:
    assert estimator(tmp_path, "exit 1").workloads(command_job()) is None
