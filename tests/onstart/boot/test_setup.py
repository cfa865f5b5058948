"""Set-up commands keep the torch that is there, unless nothing goes with it or they ask for another."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.onstart.boxes import run_module, write_job
from tests.slow import slow
from tests.wheels import wheel

HERE = "2.13.0"
"""The torch of the fake Python."""
REPLACED = f"set-up replaced torch {HERE} by 2.14.0"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index: each vision requires one version of torch."""
    folder = tmp_path_factory.mktemp("wheels")
    for version in ("2.13.0", "2.14.0"):
        wheel(folder, "torch", version)
    wheel(folder, "vision", "1.0", requires="torch==2.13.0")
    wheel(folder, "vision", "2.0", requires="torch==2.14.0")
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python with pip and that torch, into which the commands install."""
    layer = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "vastrun.onstart.boot.overlay_venv", str(layer)], check=True)
    install_torch(layer, HERE)
    return layer / "bin" / "python"


def install_torch(layer: Path, version: str) -> None:
    """Write what pip records of a package, and nothing of the package."""
    [packages] = layer.glob("lib/python*/site-packages")
    info = packages / f"torch-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").write_text(
        "".join(f"{info.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD"))
    )


def run(box: Path, python: Path, *commands: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the step's module in a box with these set-up commands."""
    (box / "code").mkdir(parents=True)
    write_job(box, setup=commands)
    settings = {"PATH": f"{python.parent}:{os.environ['PATH']}", "PIP_CONFIG_FILE": os.devnull}
    return run_module(box, "boot.setup", python=(python,), **settings, **environ)


@pytest.mark.parametrize(
    ("command", "environ", "torch", "vision", "tries"),
    [
        ("pip install vision", {}, HERE, "1.0", 1),
        *slow(
            ("pip install vision==2.0", {}, "2.14.0", "2.0", 2),
            ("pip install --upgrade torch vision", {}, "2.14.0", "2.0", 1),
            ("pip install torch vision", {}, HERE, "1.0", 1),
            ("pip install torch==2.14.0 vision", {}, "2.14.0", "2.0", 2),
            ("pip install vision", {"PIP_CONSTRAINT": ""}, "2.14.0", "2.0", 1),
        ),
    ],
    ids=[
        "any version",
        "another pinned",
        "upgrade",
        "torch named",
        "another torch",
        "constraints of the job",
    ],
)
def test_the_torch_that_is_there_stays_where_anything_goes_with_it(
    command: str,
    environ: dict[str, str],
    torch: str,
    vision: str,
    tries: int,
    wheels: Path,
    python: Path,
    tmp_path: Path,
) -> None:
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    done = run(tmp_path / "box", python, command, **index, **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    versions = "from importlib.metadata import version; print(version('torch'), version('vision'))"
    found = subprocess.run([python, "-c", versions], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [torch, vision]
    assert done.stdout.count("failed while torch==2.13.0 was kept: trying again with any torch") == tries - 1
    assert (REPLACED in done.stdout.splitlines()) == (torch != HERE)
    assert not list((tmp_path / "box").glob("*.log"))


@pytest.mark.slow
def test_a_torch_not_of_pypi_is_replaced_and_logged(wheels: Path, python: Path, tmp_path: Path) -> None:
    for info in python.parents[1].glob("lib/python*/site-packages/torch-*.dist-info"):
        shutil.rmtree(info)
    install_torch(python.parents[1], f"{HERE}+cu126")
    done = run(tmp_path / "box", python, "pip install vision", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
    assert done.stdout.splitlines()[-1] == f"set-up replaced torch {HERE}+cu126 by 2.14.0"


def test_a_command_that_fails_for_another_reason_runs_once(python: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "box", python, "true", "echo once; exit 7", "echo never")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == ["once", "set-up failed with exit code 7: echo once; exit 7"]


def test_commands_run_in_the_code_folder_and_stop_at_their_first_failing_part(tmp_path: Path) -> None:
    box = tmp_path / "box"
    done = run(box, Path(sys.executable), "touch a\npwd", "ls", "false | true; touch reached")
    assert done.stdout.splitlines() == [
        "$ touch a",
        "pwd",
        str(box / "code"),
        "$ ls",
        "a",
        "$ false | true; touch reached",
        "set-up failed with exit code 1: false | true; touch reached",
    ]
    assert not (box / "code" / "reached").exists()


def test_a_command_that_a_signal_ended_has_the_exit_code_of_a_shell(tmp_path: Path) -> None:
    done = run(tmp_path / "box", Path(sys.executable), "kill -KILL $$")
    assert "set-up failed with exit code 137" in done.stdout


def test_without_torch_nothing_is_kept(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    root = str(Path(__file__).parents[3])
    done = run(tmp_path / "box", bare / "bin" / "python", "echo ${PIP_CONSTRAINT-none}", PYTHONPATH=root)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "none"), done.stderr
