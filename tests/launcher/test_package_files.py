"""What to type for a package that is missing: true in the environment where it is missing."""

from pathlib import Path

import pytest

from vastrun.launcher.package_files import install_command


@pytest.mark.parametrize(
    ("files", "command"),
    [
        (["pyvenv.cfg", "lib/python3.12/site-packages/pip/__init__.py"], "{python} -m pip install "),
        (["lib/python3/dist-packages/yaml.py"], "{python} -m pip install "),
        (["pyvenv.cfg", "uv-receipt.toml"], "uv pip install --python {python} "),
        (["pyvenv.cfg"], "uv pip install --python {python} "),
        (["pyvenv.cfg", "pipx_metadata.json"], "pipx inject vastrun "),
    ],
    ids=["venv", "no environment", "uv tool", "uv venv", "pipx"],
)
def test_a_missing_package_is_asked_for_in_the_words_of_the_tool_that_made_the_environment(
    files: list[str], command: str, tmp_path: Path
) -> None:
    environment = tmp_path / "vastrun"
    python = environment / "bin/python"
    for file in [python, *(environment / name for name in files)]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert install_command("tpe", python=str(python)) == command.format(python=python) + "'optuna>=4'"


def test_the_packages_of_several_extras_are_named_together() -> None:
    assert install_command("tpe", "export").endswith(" install 'safetensors>=0.4' 'optuna>=4'")
