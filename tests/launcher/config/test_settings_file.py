"""The config file: what it says, and all that is wrong with it at once."""

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vastrun.launcher.config.schema import options
from vastrun.launcher.config.settings_file import KEYS, load_settings, value_of, with_value
from vastrun.launcher.config.source import SyntaxFault, parse
from vastrun.launcher.config.yaml_reader import plain
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.settings import BudgetSettings, LoadedSettings, Settings

PROVIDERS = ("local", "docker", "vast")
FULL = """\
# mine
provider: vast   # cheap

budget:
  # agreed with the group
  month_usd: 300   # dollars
  usd: 2000

# the end
"""


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
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \|", page, re.MULTILINE)
    known = {option.key: (option.expected, _shown(option.default)) for option in options(Settings)}
    assert rows == [(key, *known[key]) for key in KEYS]
    (example,) = re.findall(r"```yaml\n(.+?)```", page, re.DOTALL)
    assert not load(example).faults


def _shown(default: object) -> str:
    return {None: "none", (): "`[]`", 0.0: "0"}.get(default, f"`{default}`")  # type: ignore[call-overload]


def set_in(text: str, key: str = "budget.month_usd", value: str = "7.5") -> str:
    return with_value(text, "config.yaml", key, value)


def test_a_value_is_replaced_and_its_comment_keeps_its_column() -> None:
    assert set_in(FULL) == FULL.replace("300 ", "7.5 ")
    assert set_in(FULL, "provider", "local") == FULL.replace("vast   #", "local  #")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "budget:\n  month_usd: 7.5\n"),
        ("# only words", "# only words\nbudget:\n  month_usd: 7.5\n"),
        ("provider: vast", "provider: vast\nbudget:\n  month_usd: 7.5\n"),
        ("# a\n---\n# b\nprovider: vast\n", "# a\n---\n# b\nprovider: vast\nbudget:\n  month_usd: 7.5\n"),
        ("budget:\n    usd: 3  # all\n# end\n", "budget:\n    usd: 3  # all\n    month_usd: 7.5\n# end\n"),
        ("budget: {usd: 3} # x\n", "budget: {usd: 3, month_usd: 7.5} # x\n"),
        ("budget: {}\n", "budget:\n  month_usd: 7.5\n"),
        ("budget:  # soon\n", "budget:  # soon\n  month_usd: 7.5\n"),
        ("budget:\n  month_usd:  # none\n", "budget:\n  month_usd: 7.5 # none\n"),
        ("{provider: vast}\n", "{provider: vast, budget: {month_usd: 7.5}}\n"),
    ],
)
def test_a_new_value_finds_its_place_beside_comments(before: str, after: str) -> None:
    assert set_in(before) == after


@pytest.mark.parametrize("text", ["- provider\n", "vast\n", "provider: vast\nprovider: local\n", "budget: ["])
def test_a_file_that_cannot_be_edited_is_left_alone_with_its_line(text: str) -> None:
    with pytest.raises(SyntaxFault, match=r"config\.yaml:[12]: "):
        set_in(text)


CLUSTER = """\
slurm:
    # whose nodes
    partitions:   # all of them
      - gpu      # A100
      - 'gpu long'
    # a login node

# what the group agreed on
budget: {usd: 3}
"""


def test_comments_stay_with_the_lines_they_are_about() -> None:
    edited = set_in(CLUSTER, "slurm.login", "me@cluster")
    assert edited == CLUSTER.replace("long'\n", "long'\n    login: me@cluster\n")
    listed = set_in(CLUSTER, "slurm.partitions", "[a, 'b c']")
    assert "partitions: [a, b c]" in listed and "\n    # a login node\n" in listed


def test_text_that_yaml_would_take_for_something_else_is_quoted() -> None:
    assert set_in("", "provider", "'true'") == "provider: 'true'\n"
    assert set_in("", "provider", "'a: b # c'") == "provider: 'a: b # c'\n"
    assert set_in("", "provider", "a #b") == "provider: 'a #b'\n"


TOP = ("# a note\n", "\n", "provider: vast\n", "provider: 'x' # y\n", "budget:\n", "---\n", "...\n")
BELOW = (
    "  usd: 3\n",
    "  # deep\n",
    "  month_usd: 4 # four\n",
    "    usd: 5\n",
    "budget: {usd: 1,\n  month_usd: 2}\n",
)
LINES = st.sampled_from((*TOP, *BELOW))


@settings(deadline=None)
@example(lines=["---\n", "...\n"], key="provider")
@given(lines=st.lists(LINES, max_size=8), key=st.sampled_from(["provider", "budget.usd", "budget.month_usd"]))
def test_whatever_the_file_looks_like_a_value_that_was_set_is_there(lines: list[str], key: str) -> None:
    text = "".join(lines)
    try:
        before = plain(parse(text, "config.yaml")) or {}
        edited = with_value(text, "config.yaml", key, "42")
    except SyntaxFault:
        return
    head, _, last = key.partition(".")
    wanted = {**before, head: {**(before.get(head) or {}), last: 42} if last else 42}
    assert plain(parse(edited, "config.yaml")) == wanted
