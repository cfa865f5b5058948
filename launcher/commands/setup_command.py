"""Setup command: what a program's job installs, by the files of its folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from vastrun.launcher.bundle.checkout import code_of
from vastrun.launcher.config.job_template import UserProgram

_PACKAGES = ("pyproject.toml", "setup.py")
"""Files of a folder that pip installs."""
_DEPENDENCIES = ("install_requires", "dependencies", "requirements")
"""Words of these files that say that they name packages, too."""
_OWN_FOLDER = re.compile(r"(?m)^[ \t]*(?:-e[ \t]+|--editable[ \t=]+)?\.(?:/|\[[^\]\n]*\])?[ \t]*$")
"""The line of a requirements.txt that installs its own folder."""
_TORCH_VERSION = r"(torch(?:vision|audio)?[ \t]*(?:===?|~=|<=?)[ \t]*[\w.+*-]+)"
"""A torchvision or torchaudio needs one version of torch, too."""
_PINNED_TORCH = {
    "requirements.txt": re.compile(rf"(?m)^[ \t]*{_TORCH_VERSION}"),
    "pyproject.toml": re.compile(rf"[\"']{_TORCH_VERSION}"),
}
"""Files that name a program's packages: the first that exists is installed."""
_PYTHON_RANGE = re.compile(
    r"(?<![\w-])(?:requires-python|python_requires|python)\s*=\s*[\"']([^\"'\n]{1,50})[\"']"
)
"""The versions of Python that a package allows, in pyproject.toml (also Poetry's) and in setup.py."""
_HIGHEST_PYTHON = re.compile(r"(?:<|==|~)=?\s*3\.(\d{1,2})")
_IMAGE_PYTHON = 11
"""The images of vastrun have Python 3.11 or newer."""
_INSTALLED_WITH_TORCH = ("torchvision", "torchaudio")
"""Packages that a requirements.txt may leave out: its author installed them together with torch."""


def setup_command(folder: Path, program: UserProgram) -> str | None:
    """Return the command that installs what the program needs; None where the image has it all."""
    places = {folder, (folder / program.path).parent}
    found = [entry for place in places for entry in place.iterdir()]
    packages = program.packages({entry.stem for entry in found if entry.suffix == ".py" or entry.is_dir()})
    if (folder / "requirements.txt").is_file():
        named = _text(folder / "requirements.txt").lower()
        beside = [name for name in _INSTALLED_WITH_TORCH if name in packages and name not in named]
        return " ".join(["pip install -r requirements.txt", *beside])
    if installs_folder(folder):
        is_named = any(word in _text(folder / file) for file in _PACKAGES for word in _DEPENDENCIES)
        return " ".join(["pip install .", *([] if is_named else packages)])
    return f"pip install {' '.join(packages)}" if packages else None


def installs_folder(folder: Path) -> bool:
    """Tell whether the setup command installs the folder itself."""
    if (folder / "requirements.txt").is_file():
        return _OWN_FOLDER.search(_text(folder / "requirements.txt")) is not None
    return any((folder / file).is_file() for file in _PACKAGES)


def setup_notes(folder: Path) -> Iterator[str]:
    """Yield sentences about what the setup command does not find in the image, or replaces there."""
    if pinned := _pinned_torch(folder):
        yield f"{pinned} replaces the torch of the image: each machine downloads gigabytes."
        yield "Leave it out there, or name an image that has it: `image:`."
    if installs_folder(folder) and (python := _older_python(folder)):
        yield f"{python}; the image has 3.{_IMAGE_PYTHON} or newer."
        yield "Allow that there, or name an image with another Python: `image:`."


def _older_python(folder: Path) -> str:
    """Return which versions of Python the package allows, where they are older than the image's."""
    for name in _PACKAGES:
        for found in _PYTHON_RANGE.finditer(_text(folder / name)):
            highest = _HIGHEST_PYTHON.search(found[1])
            if highest is None:
                continue
            is_excluded = highest[0].startswith("<") and not highest[0].startswith("<=")
            if int(highest[1]) - is_excluded < _IMAGE_PYTHON:
                return f"{name} allows Python {found[1]} only"
    return ""


def _pinned_torch(folder: Path) -> str:
    """Return what replaces the image's torch: `torch==2.0.1 of requirements.txt`; empty: nothing does."""
    for name, pattern in _PINNED_TORCH.items():
        if text := _text(folder / name):
            pinned = pattern.search(text)
            return f"{pinned[1]} of {name}" if pinned else ""
    return ""


def _text(path: Path) -> str:
    """Return the text of a file; empty where it cannot be read, or is no plain file or too large."""
    return code_of(path).decode(errors="replace")
