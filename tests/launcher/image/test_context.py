"""What goes into an image is named, pinned, and the same for the same files.

Its wheels are fetched by this computer's pip, once, and only as they are pinned.
"""

import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("docker")

from tests.wheels import wheel
from vastrun.launcher.core.errors import ImageError, UsageError
from vastrun.launcher.image.build import fetch, files_of, fingerprint, platforms_of
from vastrun.launcher.image.relock import CHECKOUT, pins_of
from vastrun.onstart.boot.packages import entries

REQUIREMENTS = [CHECKOUT / "trainer/requirements.txt", *sorted((CHECKOUT / "requirements").glob("*.txt"))]
ARGUMENTS = {"TORCH": "2.13.0"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A few files, and much that has no place in an image."""
    shutil.copy(CHECKOUT / ".dockerignore", tmp_path)
    for name in (
        *(
            "Dockerfile",
            "README.md",
            "launcher/package_files.py",
            "launcher/image/lock.py",
            "configs/quickstart.yaml",
        ),
        *(".git/config", ".venv/bin/python", "runs/a/log", "secrets.env", "launcher/__pycache__/job.pyc"),
        *("configs/image.lock", "trainer/data/__pycache__/x.pyc", "tests/conftest.py"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def of(checkout: Path, arguments: dict[str, str] = ARGUMENTS) -> str:
    return fingerprint(checkout, files_of(checkout), arguments)


def test_the_context_has_what_is_allowed_and_nothing_else(checkout: Path) -> None:
    assert [path for path in files_of(checkout) if path != ".dockerignore"] == [
        *("Dockerfile", "README.md", "configs/quickstart.yaml"),
        *("launcher/image/lock.py", "launcher/package_files.py"),
    ]


def test_the_same_files_have_the_same_fingerprint_wherever_and_whenever_they_lie(checkout: Path) -> None:
    first = of(checkout)
    (checkout / "launcher/package_files.py").write_text("launcher/package_files.py")
    (checkout / "configs/image.lock").write_text("another")
    (checkout / "runs/a/log").write_text("another")
    assert of(checkout) == first
    assert of(checkout.rename(checkout.parent / "elsewhere")) == first


def test_another_content_name_mode_or_argument_is_another_fingerprint(checkout: Path) -> None:
    seen = [of(checkout), of(checkout, {"TORCH": "2.12.0"})]
    (checkout / "launcher/package_files.py").write_text("x")
    seen.append(of(checkout))
    (checkout / "launcher/package_files.py").chmod(0o755)
    seen.append(of(checkout))
    (checkout / "launcher/package_files.py").rename(checkout / "launcher/work.py")
    seen.append(of(checkout))
    assert len(set(seen)) == len(seen)


def test_a_variant_that_is_not_pinned_and_a_place_without_a_dockerfile_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no variant cu999"):
        pins_of("cu999")
    with pytest.raises(ImageError, match="no Dockerfile") as caught:
        pins_of("cpu", tmp_path)
    assert "checkout" in caught.value.hint


@pytest.mark.parametrize("variant", ["cu130", "cu126", "cpu"])
def test_every_image_is_built_on_a_base_with_a_digest(variant: str) -> None:
    assert re.search(r"@sha256:[0-9a-f]{64}$", pins_of(variant).base)


@pytest.mark.parametrize("file", REQUIREMENTS, ids=lambda file: file.name)
def test_every_package_is_pinned_by_hashes_and_as_the_tests_have_it(file: Path) -> None:
    pinned = dict(re.findall(r"^(\S+)==(\S+)", (CHECKOUT / "constraints.txt").read_text(), re.MULTILINE))
    versions = {_normalized(name): version for name, version in pinned.items()}
    found = entries(file.read_text())
    assert found
    for name, block in found.items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block)
        version = block.split("==")[1].split()[0].partition("+")[0]
        assert version == versions.get(name, version)


def _normalized(name: str) -> str:
    """Return a package's name as indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_make_installs_all_that_the_launcher_needs_by_hashes() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    makefile = (CHECKOUT / "Makefile").read_text()
    extras = project["optional-dependencies"]["docker"]
    for file, asked in (("launcher", []), ("providers", extras)):
        lines = [*project["dependencies"], *asked]
        names = {_normalized(re.match(r"[\w.-]+", line)[0]) for line in lines}  # type: ignore[index]
        assert names <= set(entries((CHECKOUT / f"requirements/{file}.txt").read_text()))
        assert f"--require-hashes --requirement requirements/{file}.txt" in makefile


def test_the_image_has_all_that_the_trainer_asks_for() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    asked = {re.match(r"[\w-]+", line)[0] for line in project["optional-dependencies"]["trainer"]}  # type: ignore[index]
    pinned = {name for file in REQUIREMENTS for name in entries(file.read_text())}
    assert asked <= pinned
    assert asked - set(entries(REQUIREMENTS[0].read_text())) == {"torch"}


BOOKWORM = {"python": "3.11", "glibc": "2.36", "machine": "x86_64"}


@pytest.fixture
def wheel_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip finds wheels, and nowhere else."""
    folder = tmp_path / "wheel_folder"
    folder.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def test_what_is_pinned_is_fetched_once(tmp_path: Path, wheel_folder: Path) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text(f"tinythere==1.0 --hash=sha256:{wheel(wheel_folder, 'tinythere')}\n")
    fetch([pins], tmp_path / "wheels", **BOOKWORM)
    assert [path.name for path in (tmp_path / "wheels").glob("*.whl")] == ["tinythere-1.0-py3-none-any.whl"]
    (wheel_folder / "tinythere-1.0-py3-none-any.whl").unlink()
    fetch([pins], tmp_path / "wheels", **BOOKWORM)


@pytest.mark.slow
def test_another_file_than_was_pinned_is_refused_and_asked_for_again_the_next_time(
    tmp_path: Path, wheel_folder: Path
) -> None:
    pins = tmp_path / "pins.txt"
    digest = wheel(wheel_folder, "tinythere")
    pins.write_text("tinythere==1.0 --hash=sha256:" + "0" * 64)
    with pytest.raises(
        ImageError, match=r"pip cannot download the packages of pins\.txt: (?s:.*)MATCH THE HASHES"
    ):
        fetch([pins], tmp_path / "wheels", **BOOKWORM)
    pins.write_text(f"tinythere==1.0 --hash=sha256:{digest}")
    fetch([pins], tmp_path / "wheels", **BOOKWORM)
    assert list((tmp_path / "wheels").glob("*.whl"))


def test_a_base_takes_wheels_for_its_glibc_and_older_ones() -> None:
    tags = platforms_of("2.36", "x86_64")
    assert tags[0] == "manylinux_2_36_x86_64"
    assert {"manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"} <= set(tags)
    assert "manylinux_2_37_x86_64" not in tags
