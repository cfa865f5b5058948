"""A job file that is not there: what to type instead."""

from dataclasses import replace
from pathlib import Path

import pytest

from vastrun.launcher.api.jobs import check_values_used, read_source, suggest_files
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.errors import JobValueError, UsageError
from vastrun.launcher.core.job import JobSpec

OWN = "name: own\nresources: {gpus: 0}\ncommand: python train.py\nsuccess: {exit_code: 0}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the user is in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("jbo.yaml", "job.yaml"),
        ("job", "job.yaml"),
        ("job.yml", "job.yaml"),
        ("jobs/sweeep.yaml", "jobs/sweep.yaml"),
        ("job/other.yml", "other.yaml"),
        ("qickstart.yaml", "quickstart.yaml"),
    ],
)
def test_mistyped_name_is_answered_with_the_file_that_was_meant(typed: str, meant: str, folder: Path) -> None:
    put(folder, "job.yaml", "other.yaml", "jobs/sweep.yaml", "runs/sweep-1.txt")
    assert suggest_files(Path(typed)) == meant


def test_where_no_name_is_like_it_those_that_are_there_are_named(folder: Path) -> None:
    put(folder, *(f"{letter}.yaml" for letter in "abcdefg"), "notes.txt")
    assert suggest_files(Path("train.yaml")) == "one of a.yaml, b.yaml, c.yaml, d.yaml, e.yaml"


def test_where_there_is_none_the_first_one_is_made_by_init(folder: Path) -> None:
    put(folder, "notes.txt")
    for typed in ("train.yaml", "nowhere/at/all/train.yaml"):
        assert suggest_files(Path(typed)).startswith("vastrun init train.py writes a job file")


def test_only_a_file_that_is_not_there_is_taken_for_mistyped(folder: Path) -> None:
    put(folder, "job.yaml")
    with pytest.raises(UsageError, match=r"cannot read jbo\.yaml: No such file") as missing:
        read_source(Path("jbo.yaml"))
    assert missing.value.hint == "job.yaml"
    with pytest.raises(UsageError, match=r"batch\.yaml: cannot read \.: Is a directory") as other:
        read_source(Path(), "batch.yaml")
    assert other.value.hint == ""


def job(folder: Path, program: str) -> JobSpec:
    """One whose code is that program, beside a large file and a link that leads nowhere."""
    (folder / "train.py").write_text(program)
    (folder / "data.txt").write_text("VASTRUN_PARAM_LR\n" * 100_000)
    (folder / "gone").symlink_to(folder / "nowhere")
    return load_job(OWN + "code: {path: .}\n", "job.yaml", [], str(folder))


@pytest.mark.parametrize(
    "program",
    [
        'lr = float(os.environ["VASTRUN_PARAM_LR"])',
        'own = {k: v for k, v in os.environ.items() if k.startswith("VASTRUN_PARAM_")}',
        'lr = float(os.environ[f"VASTRUN_PARAM_{name}"])',
    ],
)
def test_a_program_that_reads_the_variable_or_all_of_them_uses_it(tmp_path: Path, program: str) -> None:
    check_values_used(job(tmp_path, program), {"lr"})


def test_a_file_that_is_included_uses_it_and_one_that_is_excluded_does_not(tmp_path: Path) -> None:
    spec = job(tmp_path, "pass")
    assert spec.code is not None
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "settings.py").write_text('lr = os.environ["VASTRUN_PARAM_LR"]')
    included = replace(spec, code=replace(spec.code, include=("runs/settings.py",)))
    check_values_used(included, {"lr"})
    for code in (spec.code, replace(spec.code, include=("runs/settings.py",), exclude=("settings.py",))):
        with pytest.raises(JobValueError, match="the batch varies lr"):
            check_values_used(replace(spec, code=code), {"lr"})


def test_what_no_program_reads_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(JobValueError) as caught:
        check_values_used(job(tmp_path, 'os.environ["VASTRUN_PARAM_LRS"]'), {"lr", "batch-size"})
    assert str(caught.value).startswith(
        "the batch varies batch-size, lr, which neither the command, `env:` nor the code of the job uses"
    )
    assert (
        caught.value.hint == "write {batch-size} in command:, or read VASTRUN_PARAM_BATCH_SIZE in the program"
    )


def test_a_job_without_code_must_use_it_in_its_command(tmp_path: Path) -> None:
    alone = load_job(OWN, "job.yaml", [], str(tmp_path))
    check_values_used(alone, set())
    with pytest.raises(JobValueError, match="the batch varies lr"):
        check_values_used(alone, {"lr"})


def test_a_file_that_is_too_long_is_refused_before_it_is_read_as_yaml(folder: Path) -> None:
    with (folder / "job.yaml").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match=r"job\.yaml has more than 4 MB of text"):
        read_source(folder / "job.yaml")
