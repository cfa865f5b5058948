"""Text of any origin becomes markup that shows it, and nothing else."""

import json

import pytest

from tests.hostile.lie import MARKUP, STEERING
from tests.launcher.ui.report.reading import ReadPage
from vastrun.launcher.ui.report.page import Html, data_block, element, joined, text

HOSTILE = (MARKUP, STEERING, "\ud800", "a&amp;b", "<!--", "]]>", "\u2028", "'\"`=")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_is_a_tag_or_leaves_its_attribute(hostile: str) -> None:
    read = ReadPage(element("p", hostile, title=hostile))
    assert [tag for tag, _ in read.tags] == ["p"]
    assert set(read.tags[0][1]) == {"title"}
    assert not any(c in element("p", hostile) for c in "\x1b\u202e\u2028\ud800")


def test_what_is_markup_stays_so_and_what_is_text_does_not() -> None:
    assert element("p", element("b", "x"), "<b>") == "<p><b>x</b>&lt;b&gt;</p>"
    assert joined("<", None, 3) == "&lt;3"
    assert isinstance(text("x"), Html)
    assert element("details", open=True, id=None, hidden=False) == "<details open></details>"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_data_ends_the_block_that_it_is_in(hostile: str) -> None:
    block = data_block("d", {hostile: [hostile, 1.5, None]})
    assert block.isascii()
    assert block.count("<") == 2
    read = ReadPage(block)
    (names,) = read.data["d"].items()
    assert names[1][1:] == [1.5, None]


def test_no_data_holds_a_number_that_is_none() -> None:
    with pytest.raises(ValueError, match="JSON"):
        data_block("d", [float("nan")])


def test_the_data_is_what_was_given() -> None:
    read = ReadPage(data_block("d", json.loads('{"a": ["é", {"b": "<"}]}')))
    assert read.data == {"d": {"a": ["é", {"b": "<"}]}}
