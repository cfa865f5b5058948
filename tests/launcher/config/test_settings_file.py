"""The config file: what it says, and all that is wrong with it at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vastrun.launcher.config.schema import options
from vastrun.launcher.config.settings_file import KEYS, load_settings, value_of
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.settings import BudgetSettings, LoadedSettings, Settings

PROVIDERS = ("local", "docker", "vast")


def load(text: str) -> LoadedSettings:
    return load_settings(text, "config.yaml", PROVIDERS)


def test_every_setting_is_read_with_its_line() -> None:
    loaded = load("provider: vast\n\nbudget:\n  month_usd: 300\n  usd: 2000\n")
    assert loaded.settings == Settings(provider="vast", budget=BudgetSettings(month_usd=300.0, usd=2000.0))
    assert loaded.lines == {"provider": 1, "budget.month_usd": 4, "budget.usd": 5}
    assert not loaded.faults


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "budget:\nprovider:\n", "budget: {usd: }\n"])
def test_a_file_that_says_nothing_sets_nothing(text: str) -> None:
    assert load(text) == LoadedSettings()


def test_all_faults_are_told_at_once_with_their_lines_and_what_is_sound_holds() -> None:
    loaded = load("provider: docker\nbudget:\n  mnth_usd: 3\n  usd: -1\nprovder: x\n")
    assert loaded.faults == (
        "config.yaml:3: budget.mnth_usd: unknown key; did you mean month_usd?",
        "config.yaml:4: budget.usd: expected a number of at least 0, got -1",
        "config.yaml:5: provder: unknown key; did you mean provider?",
    )
    assert loaded.settings == Settings(provider="docker")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "provider: vst\n",
            "1: provider: expected one of local, docker, vast, got 'vst'; did you mean vast?",
        ),
        ("budget: 300\n", "1: budget: expected a section, got 300"),
        ("budget: {usd: '3'}\n", "1: budget.usd: expected a number of at least 0, got '3'; leave out the q"),
        ("budget: {usd: $3}\n", "1: budget.usd: expected a number of at least 0, got '$3'; write only the n"),
        ("budget: {usd: .inf}\n", "1: budget.usd: expected a number of at least 0, got '.inf'"),
        ("month_usd: 3\n", "1: month_usd: unknown key; did you mean budget.month_usd?"),
        ("budget: [\n", "2: not valid YAML: "),
        ("- provider\n", "1: expected a section, got a list of 1"),
        ("provider: vast\nprovider: local\n", "2: provider: given twice, first in line 1"),
    ],
)
def test_each_fault_says_where_it_is_and_what_was_expected(text: str, fault: str) -> None:
    (told,) = load(text).faults
    assert told.startswith(f"config.yaml:{fault}")


def test_the_keys_are_those_of_the_types_and_a_near_one_is_suggested() -> None:
    assert KEYS[:4] == ("provider", "budget.month_usd", "budget.usd", "slurm.login")
    assert value_of(Settings(provider="vast"), "provider") == "vast"
    with pytest.raises(UsageError, match=r"usd: unknown key; did you mean budget\.usd\?"):
        value_of(Settings(), "usd")


def test_the_page_on_settings_says_what_the_types_say() -> None:
    page = (Path(__file__).parents[3] / "docs" / "config.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \|", page, re.MULTILINE)
    known = {option.key: (option.expected, _shown(option.default)) for option in options(Settings)}
    assert rows == [(key, *known[key]) for key in KEYS]
    (example,) = re.findall(r"```yaml\n(.+?)```", page, re.DOTALL)
    assert not load(example).faults


def _shown(default: object) -> str:
    return {None: "none", (): "`[]`", 0.0: "0"}.get(default, f"`{default}`")  # type: ignore[call-overload]
