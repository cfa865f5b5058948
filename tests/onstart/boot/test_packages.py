"""What the onboard trainer needs and a Python lacks is installed, as pinned; what is there stays."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.onstart.boxes import run_module
from tests.onstart.supervision.launches import job_of
from tests.wheels import wheel
from vastrun import trainer
from vastrun.contract import layout
from vastrun.onstart.boot.packages import entries, missing

VAST = {"VASTRUN_PROVIDER": "vast"}
PINS = Path(trainer.__file__).with_name("requirements.txt")


def step(folder: Path, package: str = "tinykind", **environ: str) -> subprocess.CompletedProcess[str]:
    """The step of a program whose package is in `folder`; pip knows only its wheels."""
    program = {"kind": "tiny", "package": package}
    (folder / layout.JOB).write_text(json.dumps({**job_of(), "program": program}))
    root = Path(layout.__file__).parents[2]
    settings = {
        "PYTHONPATH": f"{folder / 'site'}:{folder}:{root}",
        "PIP_TARGET": str(folder / "site"),
        "PIP_FIND_LINKS": str(folder),
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
    }
    return run_module(folder, "boot.packages", cwd=folder, **settings, **environ)


def pin(folder: Path, *lines: str) -> None:
    (folder / "tinykind").mkdir()
    (folder / "tinykind/__init__.py").touch()
    (folder / "tinykind/requirements.txt").write_text("# Pins.\n" + "\n".join(lines) + "\n")


def test_the_pins_are_read_with_their_hashes() -> None:
    found = entries(PINS.read_text())
    assert {"h5py", "numpy", "wandb", "nvidia-ml-py"} <= set(found)
    assert all(block.startswith(f"{name}==") and "--hash=sha256:" in block for name, block in found.items())


def test_what_is_here_in_any_version_is_not_missing() -> None:
    pinned = {"numpy": "numpy==0.1", "no-such-package": "no-such-package==1.0"}
    assert list(missing(pinned)) == ["no-such-package"]


def test_only_what_is_lacking_is_installed_and_the_second_time_nothing(tmp_path: Path) -> None:
    pin(
        tmp_path,
        "numpy==0.1 \\\n    --hash=sha256:" + "0" * 64,
        f"tinythere==1.0 \\\n    --hash=sha256:{wheel(tmp_path, 'tinythere')}",
    )
    first, second = step(tmp_path, **VAST), step(tmp_path, **VAST)
    assert (first.returncode, first.stdout) == (0, "the image lacks tinythere: installing\n"), first.stderr
    assert (tmp_path / "site/tinythere.py").exists()
    assert (second.returncode, second.stdout) == (0, "the image has all packages\n")


def test_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    wheel(tmp_path, "tinythere")
    pin(tmp_path, "tinythere==1.0 \\\n    --hash=sha256:" + "0" * 64)
    done = step(tmp_path, **VAST)
    assert done.returncode == 1
    assert "HASHES" in done.stderr
    assert not (tmp_path / "site/tinythere.py").exists()


@pytest.mark.parametrize(
    ("package", "environ", "said"),
    [
        ("", VAST, "provides its own packages"),
        ("json", VAST, "provides its own packages"),
        ("tinykind", {"VASTRUN_PROVIDER": "local"}, "as it is"),
        ("tinykind", {"VASTRUN_PROVIDER": "pool"}, "as it is"),
        ("tinykind", {"VASTRUN_PROVIDER": "lab", "VASTRUN_KEEP_PYTHON": "1"}, "as it is"),
    ],
)
def test_nothing_is_installed_for_a_command_or_into_the_users_own_python(
    tmp_path: Path, package: str, environ: dict[str, str], said: str
) -> None:
    pin(tmp_path, "tinythere==1.0 \\\n    --hash=sha256:" + "0" * 64)
    done = step(tmp_path, package, **environ)
    assert done.returncode == 0
    assert said in done.stdout
