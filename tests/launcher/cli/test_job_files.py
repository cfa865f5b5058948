"""What `plan` and `launch` say of a job that is valid and probably not meant so."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import FakeClock, FakeProvider
from tests.jobs import command_job
from vastrun.launcher.cli.job_files import job_warnings
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.errors import JobFileError
from vastrun.launcher.core.job import Code, JobSpec, Resources, Secret

HEAD = "name: own\nresources: {gpus: 0}\nsuccess: {exit_code: 0}\n"


def job(command: str, ranks: int = 2) -> JobSpec:
    lines = "".join(f"  {line}\n" for line in command.splitlines())
    return load_job(f"{HEAD}ranks: {ranks}\ncommand: |\n{lines}", "job.yaml")


def warnings(spec: JobSpec, *, gpus: int = 0, free: bool = False, local: bool = False) -> list[str]:
    offer = replace(FakeProvider(FakeClock()).search(spec)[0], gpus=gpus, gpu_name="RTX 4090")
    return list(job_warnings(spec, [offer], free=free, local=local))


@pytest.fixture
def wandb_job(tmp_path: Path) -> JobSpec:
    (tmp_path / "train.py").write_text("import torch\n\ndef main():\n    import wandb\n")
    (tmp_path / "plain.py").write_text("import torch\n")
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nname = '\xe9'\nimport wandb.sdk\n")
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbffrom wandb import init\n")
    (tmp_path / "broken.py").write_bytes(b"import wandb\n\xff(\n")
    return replace(command_job(), code=Code(path=str(tmp_path)))


@pytest.mark.parametrize(
    ("program", "imports"),
    [("train.py", True), ("latin.py", True), ("bom.py", True), ("plain.py", False), ("broken.py", False),
     ("no/such.py", False)],
)  # fmt: skip
def test_a_program_that_imports_wandb_without_a_key_is_warned_about(
    wandb_job: JobSpec, program: str, imports: bool
) -> None:
    spec = replace(wandb_job, command=("python", "-u", program))
    said = [text for text in warnings(spec) if "wandb" in text]
    assert bool(said) is imports
    assert all(text.startswith(f"{program} imports wandb") and "offline" in text for text in said)
    assert not any("wandb" in text for text in warnings(spec, local=True))


def test_a_job_that_says_how_wandb_is_reached_is_not(wandb_job: JobSpec) -> None:
    for change in (
        {"secrets": (Secret(name="WANDB_API_KEY"),)},
        {"env": {"WANDB_MODE": "offline"}},
        {"env": {"WANDB_DISABLED": "true"}},
        {"command": ("bash", "-c", "WANDB_MODE=offline python train.py")},
        {"code": None},
    ):
        assert warnings(replace(wandb_job, **change)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            ("python", "trian.py"),
            "command: trian.py is not among the files that are uploaded; did you mean train.py?",
        ),
        (("cd conf && python ./sub/../x.py | tee log",), "command: ./sub/../x.py is not among the files"),
        (("python", "./train.py", "--out=y.py", "/opt/z.py"), None),
        (("cd part && python inner.py",), None),
    ],
)
def test_a_program_that_is_not_uploaded_is_named(
    tmp_path: Path, command: tuple[str, ...], told: str | None
) -> None:
    (tmp_path / "part").mkdir()
    for name in ("train.py", "part/inner.py"):
        (tmp_path / name).write_text("print(1)\n")
    spec = command_job(command=command, code=Code(path=str(tmp_path)))
    said = warnings(spec, free=True, local=True)
    assert len(said) == (told is not None) and all(text.startswith(told or "") for text in said)
    made = warnings(replace(spec, setup=("python make_program.py",)), free=True, local=True)
    assert made == [text for text in said if "did you mean" in text]


def test_a_gpu_that_is_paid_for_and_not_used_is_warned_about() -> None:
    spec = replace(job("python train.py"), resources=Resources(gpus=0))
    (text,) = warnings(spec, gpus=1)
    assert "1 x RTX 4090 will be paid for and not used" in text
    assert warnings(spec, gpus=1, free=True) == []
    assert warnings(spec, gpus=0) == []
    assert warnings(replace(spec, resources=Resources(gpus=1)), gpus=1) == []


@pytest.mark.parametrize(
    "command",
    [
        "python nb.ipynb",
        "python3 -u nb.ipynb --epochs 3",
        "cd src && python 'nb.ipynb'",
        "[python, nb.ipynb]",
        "[nb.ipynb]",
    ],
)
def test_a_notebook_as_program_is_an_error_that_says_what_to_do(command: str) -> None:
    with pytest.raises(JobFileError, match=r"jupyter nbconvert --to script nb\.ipynb"):
        load_job(f"{HEAD}command: {command}\n", "job.yaml")


@pytest.mark.parametrize(
    "command",
    ["papermill nb.ipynb out.ipynb", "jupyter nbconvert --to notebook --execute nb.ipynb",
     "python run.py nb.ipynb", "python -m papermill nb.ipynb out.ipynb"],
)  # fmt: skip
def test_a_notebook_as_an_argument_is_none(command: str) -> None:
    assert load_job(f"{HEAD}command: {command}\n", "job.yaml").command is not None


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git checkout whose program reads files that git ignores."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    files = {
        ".gitignore": "*.bin\n*.pt\n*.csv\nvenv/\n",
        "train.py": 'open("data/" + "train.bin")\nsave("model.pt")\nsave("scores.csv")\n',
        "data/train.bin": "x",
        "data/other.bin": "x",
        "model.pt": "x",
        "scores.csv": "x",
        "venv/train.bin": "x",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def of_checkout(checkout: Path, *include: str) -> JobSpec:
    spec = replace(job("python train.py", ranks=1), outputs=("scores.csv",))
    return replace(spec, code=Code(path=str(checkout), include=include), job_file=f"{checkout}/job.yaml")


def test_data_that_git_ignores_and_the_code_names_are_told_before_anything_is_rented(checkout: Path) -> None:
    (said,) = warnings(of_checkout(checkout), free=True, local=True)
    assert said == (
        "data/train.bin: ignored by git, so not uploaded, and the code names it; "
        "if the program reads it, add data: [{path: data/train.bin}]"
    )


@pytest.mark.parametrize(
    ("code", "files", "named"),
    [
        ("Path('./data/imgs/')", ["data/imgs/0.png", "data/imgs/1.png"], "data/imgs/"),
        ("dir = 'data/deep'; root = 'data/'", ["data/deep/a/0.pt"], "data/deep/"),
        ("root='./data'", ["data/cifar/batch_1"], "data/"),
        ("Path('./checkpoints/')", ["checkpoints/last.pth"], ""),
        ("open('exp_logs/x/log')", ["exp_logs/x/log/1.csv"], ""),
        ("import data; batch['data']", ["data/imgs/0.png"], ""),
        ("Path('./data/imgs/')", ["data/imgs/.DS_Store"], ""),
    ],
)
def test_an_ignored_folder_in_code_is_named(tmp_path: Path, code: str, files: list[str], named: str) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name, text in {
        "train.py": code,
        ".gitignore": "*\n!*.py\n!*/\n",
        **dict.fromkeys(files, "x"),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    said = list(warnings(of_checkout(tmp_path), free=True, local=True))
    assert [text.partition(": ")[0] for text in said] == [named] * bool(named)


def test_of_many_ignored_files_three_are_named(checkout: Path) -> None:
    names = [f"part{n}.bin" for n in range(5)]
    for name in names:
        (checkout / name).write_text("x")
    (checkout / "parts.yaml").write_text(str(names))
    (said,) = warnings(of_checkout(checkout), free=True, local=True)
    assert said.startswith("data/train.bin, part0.bin, part1.bin and 3 more: ")
    assert said.endswith("add data: [{path: data/train.bin}, {path: part0.bin}, {path: part1.bin}, …]")


def test_ignored_data_that_are_included_or_of_no_checkout_are_not_told(checkout: Path) -> None:
    assert warnings(of_checkout(checkout, "data"), free=True, local=True) == []
    shutil.rmtree(checkout / ".git")
    assert warnings(of_checkout(checkout), free=True, local=True) == []
