""".env files: which value a line gives a variable."""

from __future__ import annotations

import pytest

from vastrun.launcher.bundle.secret_values import value_in


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TOKEN=abc", "abc"),
        ("# TOKEN=no\n\nexport TOKEN = abc  # a comment\nOTHER=x\n", "abc"),
        ("TOKEN=abc#def", "abc#def"),
        ("TOKEN='a # \"b\" $HOME \\n'", 'a # "b" $HOME \\n'),
        ('TOKEN="a\\n\\"b\\" \\\\ \\$HOME \\d"  # c', 'a\n"b" \\ $HOME \\d'),
        ("TOKEN='two\nlines'\nOTHER=x", "two\nlines"),
        ("A='\nTOKEN=inside\n'\nTOKEN=outside", "outside"),
        ("TOKEN=first\nTOKEN=last", "last"),
        ("TOKEN=abc\r\nOTHER=x\r\n", "abc"),
        ("TOKEN=", ""),
        ("TOKEN=# nothing", ""),
        ("MY_TOKEN=abc\nTOKEN_2=abc\nTOKEN", None),
        ("", None),
    ],
)
def test_a_line_gives_a_value(text: str, value: str | None) -> None:
    assert value_in(text, "TOKEN") == value


@pytest.mark.parametrize("text", ["TOKEN='abc", 'TOKEN="abc', "TOKEN='a'b", "TOKEN='"])
def test_a_quote_that_is_not_closed_is_an_error_without_the_value(text: str) -> None:
    with pytest.raises(ValueError, match="closing") as caught:
        value_in(text, "TOKEN")
    assert "abc" not in str(caught.value)
