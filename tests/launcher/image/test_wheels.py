"""The wheels of an image are fetched by this computer's pip, once, and only as they are pinned."""

import os
from pathlib import Path

import pytest

from tests.wheels import wheel
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.image.build import fetch, platforms_of

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
