"""`vastrun init` and `vastrun schema`: how a program is started, and what editors read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.launcher.cli.first_jobs import init, written
from vastrun.launcher.cli import cli
from vastrun.launcher.config.job_template import FRAMEWORKS, Framework
from vastrun.launcher.core.job import Success

PLAIN = "import os\nprint(os.getpid())\n"


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_framework_is_recognised_by_what_the_program_imports(folder: Path, framework: Framework) -> None:
    for mark in framework.marks:
        used = framework.names[0] if framework.names else "anything"
        (folder / "train.py").write_text(f"def main():\n    from {mark} import {used}\n")
        end = init("--force")
        assert end.exit_code == 0
        assert framework.name in end.stderr
        assert f"from {framework.callback or 'vastrun import beat'}`" in (folder / "job.yaml").read_text()
        spec = written(folder)
        assert spec.command == ("python", "train.py")
        assert spec.ranks is None


@pytest.mark.parametrize(
    ("imported", "named"),
    [
        ("from transformers import GPT2LMHeadModel", "torch.distributed"),  # a model to begin with
        ("from accelerate.utils import set_seed", "torch.distributed"),
        ("import transformers\n    transformers.Seq2SeqTrainer(model)", "Hugging Face's Trainer"),
        ("from transformers import TrainingArguments", "Hugging Face's Trainer"),
    ],
)
def test_a_framework_is_recognised_only_by_the_part_that_starts_ranks(
    folder: Path, imported: str, named: str
) -> None:
    (folder / "train.py").write_text(f"import torch.distributed as dist\n\ndef main():\n    {imported}\n")
    assert f"with {named}" in init().stderr


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ('torch.distributed.init_process_group("nccl")', "one process per rank, with torch.distributed"),
        ("torch.distributed.is_available()", "as one process"),
    ],
)
def test_a_program_that_imports_torch_alone_may_start_ranks(folder: Path, call: str, named: str) -> None:
    (folder / "train.py").write_text(f"import torch\n{call}\n")
    assert named in init().stderr


TOOL = """
import argparse, torch

def save_weights(model):
    torch.save(model.state_dict(), "/data/weights.pt")

def convert():
    from transformers import Trainer
    torch.save(Trainer(model), "/data/converted.pt")

@registered
def build():
    open("/data/built.txt", "w")

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("stage", choices=["download", "convert"])
    parser.add_argument("--shards", required=True)
    parser.parse_args()
    convert()
    open("/data/table.csv", "w")
"""


def test_what_a_module_does_only_as_a_program_of_its_own_is_left_out(folder: Path) -> None:
    (folder / "tool.py").write_text(TOOL)
    program = "import torch.distributed\nfrom tool import save_weights\nsave_weights(m)\n"
    (folder / "train.py").write_text(program)
    assert "with torch.distributed" in init().stderr
    text = (folder / "job.yaml").read_text()
    assert "/data/weights.pt" in text and "/data/built.txt" in text
    assert "stage" not in text and "shards" not in text and "converted" not in text and "table" not in text
    assert init("tool.py", "--force").exit_code == 0  # the same file as the program
    text = (folder / "job.yaml").read_text()
    assert "requires: stage, --shards" in text and "/data/converted.pt" in text and "/data/table.csv" in text


def test_a_submodule_that_is_imported_by_name_is_recognised(folder: Path) -> None:
    (folder / "main.py").write_text("from torch import distributed as dist\n")
    assert "torch.distributed" in init().stderr


def test_a_program_that_starts_its_ranks_itself_is_started_once(folder: Path) -> None:
    lines = ("import torch.distributed", "import torch.multiprocessing as mp", "mp.spawn(train, nprocs=4)")
    (folder / "main.py").write_text("\n".join(lines))
    assert "as one process, which starts the others" in init().stderr
    assert "by mp.spawn in main.py:3" in (folder / "job.yaml").read_text()
    assert written(folder).ranks == 1


def test_steps_and_files_are_proposed_as_proofs_before_the_exit_code(folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN)
    assert init().exit_code == 0
    _, _, proofs = (folder / "job.yaml").read_text().partition("success:\n")
    places = [proofs.index(f"{name}:") for name in ("steps", "files", "log", "exit_code")]
    assert places == sorted(places)
    assert written(folder).success == Success(exit_code=0)


SAVES = """
import argparse, os, torch
from parts.saving import plot
parser = argparse.ArgumentParser()
parser.add_argument("--out", default="results")
parser.add_argument("--resume")
args = parser.parse_args()
torch.save({"optimizer": 0}, os.path.join("checkpoints", f"step_{step}.pt"))
torch.save(model, f"{args.out}/model.pt")
"""


def test_checkpoints_outputs_and_how_to_continue_are_filled_in(folder: Path) -> None:
    (folder / "train.py").write_text(SAVES)
    (folder / "parts").mkdir()
    (folder / "parts" / "saving.py").write_text('def plot():\n    plt.savefig("figures/loss.png")\n')
    (folder / "parts" / "__init__.py").write_text("def broken(:\n")
    assert init().exit_code == 0
    spec = written(folder)
    assert spec.command == ("python", "train.py", "{resume:--resume}")
    assert spec.checkpoints.files == "checkpoints/step_*.pt"
    assert spec.outputs == ()  # all is downloaded
    assert "  # files: results/model.pt " in (folder / "job.yaml").read_text()


def test_a_switch_to_continue_is_left_to_the_shell(folder: Path) -> None:
    (folder / "train.py").write_text(SAVES.replace('"--resume"', '"--resume", action="store_true"'))
    assert init().exit_code == 0
    assert (written(folder).command or ())[-1].endswith("; python train.py ${VASTRUN_RESUME:+--resume}")


@pytest.mark.parametrize(
    "program",
    [
        'torch.save(s, "a: b #c/\\"{x}\\n.pt")',
        'open("true", "w")\nopen("- x", "w")\nopen("[", "w")\nopen("12", "w")\nopen("*", "w")',
        'torch.save(s, "$HOME/step_1.pt")\nopen("{resume}", "w")',
        'torch.save(s, "**/step_1.pt")\nopen("a**b/x", "w")\nopen("é ü", "w")',
    ],
)
def test_odd_names_of_files_still_make_a_valid_job(folder: Path, program: str) -> None:
    (folder / "train.py").write_text(program)
    assert init().exit_code == 0
    assert written(folder).name == "my-code"


def test_modules_are_read_up_to_a_limit_and_only_in_the_folder(folder: Path) -> None:
    (folder.parent / "outside.py").write_text('open("/o/outside.txt", "w")')
    (folder / "link.py").symlink_to("../outside.py")
    (folder / "train.py").write_text("import link, m0, large\n")
    (folder / "large.py").write_text('open("/o/large.txt", "w")\n' + "#" * 600_000)
    for n in range(40):
        (folder / f"m{n}.py").write_text(f'import m{n + 1}, train\nopen("/o/{n}.txt", "w")\n')
    assert init().exit_code == 0
    text = (folder / "job.yaml").read_text()
    assert "# Not downloaded: /o/0.txt (m0.py:2)" in text
    assert "outside.txt" not in text and "large.txt" not in text


def test_a_program_of_one_process_is_started_once(folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN)
    assert "as one process" in init().stderr
    spec = written(folder)
    assert (spec.name, spec.ranks, spec.setup, spec.secrets) == ("my-code", 1, (), ())
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
    ("text", "said"),
    [
        ("def f(:\n", "train.py:1: is not a Python program"),
        ("a\0b", "train.py"),
        ("(" * 5000, "train.py"),
        (None, "train.py: No such file"),
    ],
)
def test_what_is_no_program_is_one_clear_error(folder: Path, text: str | None, said: str) -> None:
    if text is not None:
        (folder / "train.py").write_text(text)
    end = init("train.py")
    assert end.exit_code == 2
    assert said in end.stderr
    assert "SyntaxError" not in end.stderr, "it is said once"
    assert not (folder / "job.yaml").exists()


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
def test_the_schema_is_printed_as_it_is_shipped(kind: str) -> None:
    end = CliRunner().invoke(cli, ["schema", kind])
    assert end.exit_code == 0
    assert json.loads(end.stdout)["title"] == f"vastrun {kind} file"


def test_a_notebook_is_refused_with_what_to_do(folder: Path) -> None:
    (folder / "nb.ipynb").write_text('{"cells": []}')
    end = init("nb.ipynb")
    assert end.exit_code == 2
    assert "nb.ipynb: is a notebook, which Python cannot run" in end.stderr
    assert "jupyter nbconvert --to script 'nb.ipynb', then: vastrun init 'nb.py'" in end.stderr
    assert not (folder / "job.yaml").exists()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("torchrun --nproc_per_node=8 src/train.py --lr 1\n", "vastrun init src/train.py"),
        ("python ./prepare.py && python -u src/train.py\n", "vastrun init src/train.py"),
        ("make train\n", "write `command: bash go.sh` in a job file"),
        ("python /opt/elsewhere/src/train.py \xff\n", "write `command: bash go.sh` in a job file"),
    ],
)
def test_for_a_shell_script_the_program_that_it_starts_is_named(folder: Path, text: str, hint: str) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(PLAIN)
    (folder / "go.sh").write_text(text, encoding="latin-1")
    end = init("go.sh")
    assert end.exit_code == 2
    assert "go.sh: is a shell script" in end.stderr
    assert hint in end.stderr
    assert not (folder / "job.yaml").exists()


@pytest.mark.parametrize(
    "program",
    [
        b"\xef\xbb\xbfimport lightning\n",
        b"# -*- coding: latin-1 -*-\nname = '\xe9'\nimport lightning\n",
        b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nprice = '\x80'\nimport lightning\n",
    ],
)
def test_a_program_is_read_by_its_bom_or_its_coding_line(folder: Path, program: bytes) -> None:
    (folder / "train.py").write_bytes(program)
    end = init("train.py")
    assert end.exit_code == 0, end.output
    assert "one process per rank, with Lightning" in end.stderr
    assert "LOCAL_WORLD_SIZE" in (folder / "job.yaml").read_text()


@pytest.mark.parametrize("program", [b"# coding: nosuch\n", b"# coding: utf-8\nname = '\xe9'\n"])
def test_a_program_that_python_cannot_decode_is_refused(folder: Path, program: bytes) -> None:
    (folder / "train.py").write_bytes(program)
    assert init("train.py").exit_code == 2
