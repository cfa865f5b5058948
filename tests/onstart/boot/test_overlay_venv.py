"""A virtual environment on top of another: it sees what is there and keeps what is installed."""

import subprocess
import sys
from pathlib import Path
from venv import EnvBuilder

import pytest

from vastrun.onstart.boot import overlay_venv


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("box") / "python"
    subprocess.run([sys.executable, "-m", "vastrun.onstart.boot.overlay_venv", str(folder)], check=True)
    return folder


def says(layer: Path, code: str) -> str:
    command = [str(layer / "bin" / "python"), "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_it_is_an_environment_of_its_own(layer: Path) -> None:
    assert says(layer, "import sys; print(sys.prefix)") == str(layer)


def test_it_sees_the_packages_below(layer: Path) -> None:
    assert says(layer, "import pytest; print(pytest.__file__)") == pytest.__file__


def test_what_is_installed_into_it_comes_first(layer: Path) -> None:
    packages = Path(says(layer, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    (packages / "annotated_types.py").write_text("ours = True\n")
    assert says(layer, "import annotated_types; print(annotated_types.ours)") == "True"


def test_its_pip_installs_into_it(layer: Path) -> None:
    command = [str(layer / "bin" / "pip"), "config", "debug"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert str(layer / "pip.conf") in said


@pytest.mark.slow
def test_a_python_without_pip_gets_one(tmp_path: Path) -> None:
    EnvBuilder(symlinks=True, with_pip=False).create(tmp_path / "bare")  # as uv makes them
    root = Path(overlay_venv.__file__).parents[3]
    command = [tmp_path / "bare/bin/python", "-m", "vastrun.onstart.boot.overlay_venv", tmp_path / "layer"]
    subprocess.run(command, check=True, cwd=root)
    said = subprocess.run([tmp_path / "layer/bin/pip", "--version"], capture_output=True, text=True)
    assert said.stdout.startswith("pip "), said.stderr


def test_its_pip_is_a_program_of_its_own_under_both_names(layer: Path) -> None:
    checked = Path(overlay_venv.__file__).with_name("pip.sh").read_bytes()
    assert [(layer / "bin" / name).read_bytes() for name in ("pip", "pip3")] == [checked, checked]
