"""`vastrun init` and `vastrun schema`: how a program is started, what it needs, and what editors read."""

import json
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vastrun.launcher.cli import cli
from vastrun.launcher.config.command import script_of
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.job import JobSpec, Success


def init(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["init", *arguments])


def written(folder: Path, name: str = "job.yaml") -> JobSpec:
    text = (folder / name).read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=.vastrun/job.schema.json\n")
    return load_job(text, name, (), str(folder))


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


def test_packages_that_the_image_lacks_are_installed(folder: Path) -> None:
    (folder / "mine.py").write_text("")
    (folder / "train.py").write_text("import torch, einops, json, mine, sklearn.svm\nfrom . import other\n")
    init()
    assert written(folder).setup == ("pip install einops scikit-learn",)


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("hydra", "hydra-core"),
        ("neuralop", "neuraloperator"),
        ("dotenv", "python-dotenv"),
        ("git", "gitpython"),
    ],
)
def test_a_package_is_installed_by_its_own_name(folder: Path, module: str, package: str) -> None:
    (folder / "train.py").write_text(f"import {module}\n")
    init()
    assert written(folder).setup == (f"pip install {package}",)


def test_what_the_program_imports_is_installed_unless_it_does_without(folder: Path) -> None:
    (folder / "parts").mkdir()
    (folder / "train.py").write_text(
        "import boto3, parts.near\n"
        "try:\n    import apex\nexcept ImportError:\n    import timm\n"
        "try:\n    import flash_attn, einops\nexcept (OSError, ModuleNotFoundError):\n    pass\n"
        "try:\n    import zarr\nexcept OSError:\n    raise\n"
        "try:\n    import wandb\nexcept:\n    pass\n"
    )
    init()
    spec = written(folder)
    assert spec.setup == ("pip install boto3 timm zarr",)
    assert [secret.name for secret in spec.secrets] == ["WANDB_API_KEY"]


@pytest.mark.parametrize(
    ("file", "text", "command"),
    [
        ("requirements.txt", "", "pip install -r requirements.txt"),
        ("pyproject.toml", '[project]\ndependencies = ["einops"]', "pip install ."),
        ("pyproject.toml", "[tool.poetry.dependencies]", "pip install ."),
        ("setup.py", "setup(install_requires=[])", "pip install ."),
        ("setup.py", "setup(packages=find_packages())", "pip install . einops"),
    ],
)
def test_the_packages_that_the_folder_itself_names_are_installed(
    folder: Path, file: str, text: str, command: str
) -> None:
    (folder / file).write_text(text)
    (folder / "train.py").write_text("import einops\n")
    init()
    assert written(folder).setup == (command,)


@pytest.mark.parametrize("line", [".", "-e .", "--editable=.", "./", ".[train]"])
def test_a_folder_that_its_requirements_install_is_on_no_path(folder: Path, line: str) -> None:
    (folder / "lab").mkdir()
    (folder / "lab" / "__init__.py").write_text("")
    (folder / "tools").mkdir()
    (folder / "tools" / "fit.py").write_text("import lab\n")
    (folder / "requirements.txt").write_text(f"numpy\n{line}\n")
    init("tools/fit.py")
    assert written(folder).env == {}


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("torch==2.0.1", True),
        ("torch ~= 2.1", True),
        ("torchvision==0.15.2+cu118", True),
        ("torch>=2.0", False),
        ("torch", False),
        ("torchmetrics==1.4.0", False),
        ("# torch==2.0.1", False),
    ],
)
def test_a_torch_that_replaces_the_images_is_told(folder: Path, line: str, is_told: bool) -> None:
    (folder / "requirements.txt").write_text(f"numpy\n{line}\n")
    (folder / "train.py").write_text("import torch\n")
    init()
    text = (folder / "job.yaml").read_text()
    assert (f"# {line} of requirements.txt replaces the torch of the image" in text) is is_told
    assert written(folder).setup == ("pip install -r requirements.txt",)


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ('[project]\ndependencies = ["numpy", "torch~=1.13.0"]', True),
        ('[project]\ndependencies = ["torch>=1.13"]', False),
        ('[project]\ndependencies = [{}, "torch==1.13.0"]', True),
        ('project = "x"', False),
        ("[project]\ndependencies = 3", False),
        ("not toml", False),
    ],
)
def test_a_torch_that_a_package_pins_is_told(folder: Path, text: str, is_told: bool) -> None:
    (folder / "pyproject.toml").write_text(text)
    (folder / "train.py").write_text("import torch\n")
    init()
    told = "of pyproject.toml replaces the torch of the image" in (folder / "job.yaml").read_text()
    assert told is is_told


@pytest.mark.parametrize(
    ("file", "text", "allowed"),
    [
        ("pyproject.toml", '[project]\nrequires-python = ">=3.8,<3.11"', ">=3.8,<3.11"),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "~3.9"', "~3.9"),
        ("pyproject.toml", '[project]\nrequires-python = "<=3.10"', "<=3.10"),
        ("setup.py", 'setup(name="a", python_requires="==3.7.*")', "==3.7.*"),
        ("pyproject.toml", '[project]\nrequires-python = ">=3.8,<3.13"', None),
        ("pyproject.toml", '[project]\nrequires-python = ">=3.8"', None),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.9"', None),
        ("requirements.txt", 'python = "<3.11"', None),
    ],
)
def test_a_package_for_an_older_python_than_the_images_is_told(
    folder: Path, file: str, text: str, allowed: str | None
) -> None:
    (folder / file).write_text(text)
    (folder / "train.py").write_text("import torch\n")
    init()
    job = (folder / "job.yaml").read_text()
    assert (f"# {file} allows Python {allowed} only; the image has 3.11 or newer." in job) is (
        allowed is not None
    )


def test_a_program_that_reports_to_wandb_gets_its_key(folder: Path) -> None:
    (folder / "train.py").write_text("import wandb\n")
    init()
    assert [secret.name for secret in written(folder).secrets] == ["WANDB_API_KEY"]


@pytest.mark.parametrize(
    ("line", "imports", "setup"),
    [
        ("tqdm", "import torchvision.transforms as T", "pip install -r requirements.txt torchvision"),
        ("tqdm", "import torchvision, torchaudio", "pip install -r requirements.txt torchvision torchaudio"),
        ("TorchVision>=0.20", "import torchvision", "pip install -r requirements.txt"),
        ("tqdm", "try:\n    import torchvision\nexcept ImportError: pass", "pip install -r requirements.txt"),
        ("tqdm", "import torch", "pip install -r requirements.txt"),
    ],
)
def test_packages_beside_torch_are_installed_too(folder: Path, line: str, imports: str, setup: str) -> None:
    (folder / "requirements.txt").write_text(f"{line}\n")
    (folder / "train.py").write_text(f"{imports}\n")
    assert init("train.py").exit_code == 0
    assert written(folder).setup == (setup,)
