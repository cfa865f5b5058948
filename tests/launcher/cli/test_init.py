"""`vastrun init` and `vastrun schema`: how a program is started, and what editors read."""

import json
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.launcher.cli.first_jobs import init, written
from vastrun.launcher.cli import cli
from vastrun.launcher.config.command import script_of
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.job import Success

PLAIN = "import os\nprint(os.getpid())\n"


@pytest.mark.parametrize(
    "text", [PLAIN, "from transformers import GPT2LMHeadModel", "import torch.distributed as dist"]
)
def test_another_program_is_told_how_ranks_are_started(folder: Path, text: str) -> None:
    (folder / "train.py").write_text(text)
    assert "wrote job.yaml: train.py\n" in init().stderr
    assert "init_process_group() and what calls it find the ranks" in (folder / "job.yaml").read_text()


def test_steps_and_files_are_proposed_as_proofs_before_the_exit_code(folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN)
    assert init().exit_code == 0
    _, _, proofs = (folder / "job.yaml").read_text().partition("success:\n")
    places = [proofs.index(f"{name}:") for name in ("steps", "files", "log", "exit_code")]
    assert places == sorted(places)
    assert written(folder).success == Success(exit_code=0)


def test_what_it_writes_is_left_to_a_rehearsal(folder: Path) -> None:
    (folder / "train.py").write_text('import torch\ntorch.save(state, "checkpoints/step_1.pt")\n')
    end = init()
    assert "what it does and writes: vastrun rehearse job.yaml" in " ".join(end.stderr.split())
    text = (folder / "job.yaml").read_text()
    assert "# checkpoints: checkpoints/*\n" in text and "# outputs: results/*\n" in text
    spec = written(folder)
    assert (spec.checkpoints.files, spec.outputs) == (None, ())
    uncommented = text.replace("# checkpoints:", "checkpoints:").replace("# retry:", "retry:")
    uncommented = uncommented.replace("# outputs:", "outputs:").replace("  # log:", "  log:")
    assert load_job(uncommented, "job.yaml", (), str(folder)).checkpoints.files == "checkpoints/*"


def test_a_program_on_one_gpu_is_one_process(folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN)
    assert init().exit_code == 0
    spec = written(folder)
    assert (spec.name, spec.ranks_per_node, spec.setup, spec.secrets) == ("my-code", 1, (), ())
    assert spec.limits.usd == 5


def test_a_script_in_a_folder_below_is_found_from_where_the_job_file_is(folder: Path) -> None:
    (folder / "src" / "my runs").mkdir(parents=True)
    (folder / "src" / "my runs" / "fit.py").write_text(PLAIN)
    assert init("src/my runs/fit.py", "--output", "fit.yaml").exit_code == 0
    spec = written(folder, "fit.yaml")
    assert spec.name == "fit"
    assert spec.command == ("python", "src/my runs/fit.py")


def test_a_file_of_a_package_is_started_as_a_module(folder: Path) -> None:
    (folder / "lab").mkdir()
    (folder / "lab" / "models.py").write_text("")
    (folder / "lab" / "fit.py").write_text("from .models import Net\n")
    assert init("lab/fit.py").exit_code == 0
    assert written(folder).command == ("python", "-m", "lab.fit")


@pytest.mark.parametrize(
    ("program", "files", "needs_folder"),
    [
        ("from lab.models import Net", ["lab/models.py"], True),
        ("import shared", ["shared.py"], True),
        ("import own", ["lab/own.py", "own.py"], False),
        ("import data", ["data/x.bin"], False),
        ("from lab.models import Net", ["lab/models.py", "lab/__init__.py", "pyproject.toml"], False),
        ("from lab.models import Net", ["lab/models.py", "setup.py"], True),
        (
            "from lab.models import Net",
            ["lab/models.py", "lab/__init__.py", "pyproject.toml", "requirements.txt"],
            True,
        ),
    ],
)
def test_a_program_below_finds_the_modules_of_the_folder(
    folder: Path, program: str, files: list[str], needs_folder: bool
) -> None:
    for file in ("lab/fit.py", *files):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text("")
    (folder / "lab" / "fit.py").write_text(program)
    assert init("lab/fit.py").exit_code == 0
    spec = written(folder)
    assert spec.command == ("python", "lab/fit.py")
    assert spec.env == ({"PYTHONPATH": "."} if needs_folder else {})


def test_without_a_program_the_job_is_the_onboard_trainers(folder: Path) -> None:
    end = init("--name", "first")
    assert "onboard trainer" in end.stderr
    spec = written(folder)
    assert (spec.name, spec.train is not None, spec.command) == ("first", True, None)


def test_a_job_file_that_exists_is_kept(folder: Path) -> None:
    (folder / "job.yaml").write_text("mine")
    end = init()
    assert (end.exit_code, (folder / "job.yaml").read_text()) == (2, "mine")
    assert "job.yaml exists already" in end.stderr
    assert not (folder / ".vastrun").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"def f(:\n", "train.py: is not a Python program: invalid syntax (line 1)"),
        (b"a\0b", "train.py: is not a Python program"),
        (b"(" * 5000, "train.py: is not a Python program: too many nested parentheses"),
        (b"-" * 100_000 + b"1", "train.py: is not a Python program: it is nested too deeply"),
        (b"1+" * 50_000 + b"1", "train.py: is not a Python program: maximum recursion depth"),
        (b"1" * 5000, "train.py: is not a Python program: Exceeds the limit"),
        (b"# coding: rot13\n", "train.py: is not a Python program"),
        (b"# coding: nosuch\n", "train.py: is not a Python program"),
        (b"# coding: utf-8\nname = '\xe9'\n", "train.py: is not a Python program"),
        (b"\x7fELF\2\1\1\0" + bytes(range(256)), "train.py: is not a Python program"),
        (b"a\n" * 1_000_000, "train.py: is larger than 200 kB"),
        (None, "train.py: No such file"),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else "",
)
def test_what_is_no_program_is_one_clear_error(folder: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (folder / "train.py").write_bytes(content)
    end = init("train.py")
    assert (end.exit_code, type(end.exception)) == (2, SystemExit)
    assert said in end.stderr
    assert "SyntaxError" not in end.stderr, "it is said once"
    assert not (folder / "job.yaml").exists()


@pytest.mark.parametrize("name", ["train.py", "requirements.txt", "pyproject.toml", "setup.py"])
def test_a_pipe_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / "train.py").write_text(PLAIN)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    end = init("train.py")
    assert end.exit_code == (2 if name == "train.py" else 0)
    assert "Traceback" not in end.stderr


def test_links_in_a_circle_are_one_clear_error(folder: Path) -> None:
    (folder / "train.py").symlink_to("other.py")
    (folder / "other.py").symlink_to("train.py")
    end = init("train.py")
    assert (end.exit_code, type(end.exception)) == (2, SystemExit)


@pytest.mark.parametrize("place", ["job.yaml", ".vastrun", ".vastrun/job.schema.json"])
@pytest.mark.parametrize("force", [[], ["--force"]])
def test_nothing_is_written_through_a_link(folder: Path, place: str, force: list[str]) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / "train.py").write_text(PLAIN)
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).symlink_to(outside if place == ".vastrun" else outside / "authorized_keys")
    end = init(*force)
    assert end.exit_code == 2
    assert "is a link" in end.stderr
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["it's.py", 'a "b".py', "a b.py", "$(id).py", "{resume}.py", "a: b #c.py", "é ü.py", "a\\b.py"]
)
def test_any_name_of_a_program_reaches_python_as_one_word(folder: Path, name: str) -> None:
    (folder / name).write_text(PLAIN)
    assert init(name).exit_code == 0
    command = written(folder).command
    assert command is not None
    assert command[-1] == name or script_of(command) == f"python {shlex.quote(name)}"


def test_a_name_that_is_not_utf_8_is_refused(folder: Path) -> None:
    name = os.fsdecode(b"a\xff.py")
    (folder / name).write_text(PLAIN)
    end = init(name)
    assert (end.exit_code, type(end.exception)) == (2, SystemExit)


def test_a_program_elsewhere_is_refused_since_it_would_not_be_shipped(folder: Path) -> None:
    (folder.parent / "other.py").write_text(PLAIN)
    end = init("../other.py")
    assert end.exit_code == 2
    assert "is not in" in end.stderr


@pytest.mark.parametrize("name", ["2026", "true", "3.5", "1e-3", "x-"])
def test_a_name_that_yaml_would_read_otherwise_is_quoted(folder: Path, name: str) -> None:
    (folder / "train.py").write_text(PLAIN)
    assert init("--name", name).exit_code == 0
    assert written(folder).name == name


@pytest.mark.parametrize("name", ["a: b", "x #y", "", "-x"])
def test_a_name_that_no_job_may_have_is_refused(folder: Path, name: str) -> None:
    end = init(f"--name={name}")
    assert end.exit_code == 2
    assert "--name: expected up to 63 letters" in end.stderr
    assert not (folder / "job.yaml").exists()


@pytest.mark.parametrize("kind", ["job", "batch"])
def test_the_schema_of_a_kind_of_files_is_printed(kind: str) -> None:
    end = CliRunner().invoke(cli, ["schema", kind])
    assert end.exit_code == 0
    assert json.loads(end.stdout)["title"] == f"vastrun {kind} file"


@pytest.mark.parametrize(
    ("file", "fault", "advice"),
    [
        (
            "nb.ipynb",
            "is a notebook, which Python cannot run",
            "jupyter nbconvert --to script 'nb.ipynb', then: vastrun init 'nb.py'",
        ),
        ("go.sh", "is a shell script", "or write `command: bash go.sh` in a job file"),
    ],
)
def test_what_python_cannot_run_is_refused_with_what_to_do(
    folder: Path, file: str, fault: str, advice: str
) -> None:
    (folder / file).write_text("torchrun train.py\n")
    end = init(file)
    assert end.exit_code == 2
    assert f"{file}: {fault}" in end.stderr
    assert advice in end.stderr
    assert not (folder / "job.yaml").exists()


@pytest.mark.parametrize(
    "program",
    [
        b"\xef\xbb\xbfimport torch\n",
        b"# -*- coding: latin-1 -*-\nname = '\xe9'\nimport torch\n",
        b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nprice = '\x80'\nimport torch\n",
    ],
)
def test_a_program_is_read_by_its_bom_or_its_coding_line(folder: Path, program: bytes) -> None:
    (folder / "train.py").write_bytes(program)
    end = init("train.py")
    assert end.exit_code == 0, end.output
    assert "wrote job.yaml: train.py\n" in end.stderr
