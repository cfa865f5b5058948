"""The README of the built package: its links lead to the repository that `project.urls` names."""

import re
import tomllib
from pathlib import Path

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def packaged(**urls: str) -> str:
    """Return the README in the metadata of a package whose project has these addresses."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    config["project"]["urls"] = urls
    return ProjectMetadata(str(ROOT), PluginManager(), config).core.readme


def test_with_an_address_each_link_is_absolute_and_each_picture_is_the_file_itself() -> None:
    text = packaged(Repository="https://code.example/lab/vastrun/")
    assert "(https://code.example/lab/vastrun/raw/v0.1.0/docs/pictures/live-run.png)" in text
    assert "(https://code.example/lab/vastrun/blob/v0.1.0/docs/data.md#files-from-the-web)" in text
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) == len(re.findall(r"\]\(", README))
    assert [target for target in targets if not target.startswith("https://")] == []


def test_without_an_address_the_readme_is_as_it_stands() -> None:
    assert packaged(Documentation="https://vastrun.example") == README
