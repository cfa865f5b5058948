"""A value is set or taken out in the text of a YAML file, and nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vastrun.launcher.config.source import SyntaxFault, parse
from vastrun.launcher.config.yaml_edit import with_value, without_value
from vastrun.launcher.config.yaml_reader import plain

FULL = """\
# mine
provider: vast   # cheap

budget:
  # agreed with the group
  month_usd: 300   # dollars
  usd: 2000

# the end
"""


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
    assert without_value(edited, "config.yaml", "slurm.login") == CLUSTER
    listed = set_in(CLUSTER, "slurm.partitions", "[a, 'b c']")
    assert "partitions: [a, b c]" in listed and "\n    # a login node\n" in listed
    shorter = without_value(CLUSTER, "config.yaml", "slurm.partitions")
    assert [line for line in CLUSTER.splitlines() if line.lstrip()[:1] == "#"] == [
        line for line in shorter.splitlines() if line.lstrip()[:1] == "#"
    ]


def test_text_that_yaml_would_take_for_something_else_is_quoted() -> None:
    assert set_in("", "provider", "'true'") == "provider: 'true'\n"
    assert set_in("", "provider", "'a: b # c'") == "provider: 'a: b # c'\n"


@pytest.mark.parametrize(
    ("key", "gone"),
    [
        ("provider", "provider: vast   # cheap\n"),
        ("budget.month_usd", "  month_usd: 300   # dollars\n"),
        ("budget.usd", "  usd: 2000\n"),
    ],
)
def test_a_value_is_taken_out_with_its_line(key: str, gone: str) -> None:
    assert without_value(FULL, "config.yaml", key) == FULL.replace(gone, "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("provider: vast\nbudget:\n  usd: 3\n# end\n", "provider: vast\n# end\n"),
        ("budget: {month_usd: 1, usd: 3} # x\n", "budget: {month_usd: 1}         # x\n"),
        ("budget: {usd: 3, month_usd: 1} # x\n", "budget: {month_usd: 1}         # x\n"),
        ("budget: {usd: 3}", ""),
    ],
)
def test_a_section_that_would_be_left_empty_goes_with_its_last_value(before: str, after: str) -> None:
    assert without_value(before, "config.yaml", "budget.usd") == after


@pytest.mark.parametrize(
    "text", ["", "provider: vast\n", "budget:\n", "budget: 3\n", "budget: {month_usd: 1}"]
)
def test_what_is_not_set_cannot_be_taken_out(text: str) -> None:
    with pytest.raises(KeyError):
        without_value(text, "config.yaml", "budget.usd")


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
def test_whatever_the_file_looks_like_a_value_that_was_set_is_there_and_goes_again(
    lines: list[str], key: str
) -> None:
    text = "".join(lines)
    try:
        before = plain(parse(text, "config.yaml")) or {}
        edited = with_value(text, "config.yaml", key, "42")
    except SyntaxFault:
        return
    head, _, last = key.partition(".")
    wanted = {**before, head: {**(before.get(head) or {}), last: 42} if last else 42}
    assert plain(parse(edited, "config.yaml")) == wanted
    left = plain(parse(without_value(edited, "config.yaml", key), "config.yaml")) or {}
    kept = before | {head: _without(before.get(head), last)}
    assert {k: v for k, v in left.items() if v} == {k: v for k, v in kept.items() if v}


def _without(section: object, key: str) -> object:
    return {k: v for k, v in section.items() if k != key} if isinstance(section, dict) else None


def test_the_edit_keeps_every_comment_of_a_file_in_the_usual_form() -> None:
    text = FULL
    for key, value in (("provider", "local"), ("budget.usd", "1"), ("budget.month_usd", "2")):
        text = set_in(text, key, value)
    assert [line.partition("#")[2] for line in text.splitlines()] == [
        line.partition("#")[2] for line in FULL.splitlines()
    ]
