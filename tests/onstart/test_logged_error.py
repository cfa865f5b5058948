"""What is read from the end of a program's log."""

from pathlib import Path

import pytest

from vastrun.onstart.logged_error import Raised, last_raised, parse_raised

BOOM = """\
Traceback (most recent call last):
  File "train.py", line 7, in <module>
    main()
ValueError: boom
"""
CHAIN = """\
Traceback (most recent call last):
  File "train.py", line 3, in load
KeyError: 'u'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 5, in <module>
RuntimeError: no field u
with more to say
"""


SYNTAX = "SyntaxError: invalid syntax"
LAST = """\
Traceback (most recent call last):
  File "train.py", line 5, in <module>
RuntimeError: no field u"""


@pytest.mark.parametrize(
    ("text", "exception", "traceback"),
    [
        ("epoch 1\n" + BOOM + "some other thread prints\n", "ValueError: boom", BOOM.strip()),
        # What torch puts before each line is no part of the exception.
        ("step 5\n[rank1]: " + BOOM.replace("\n", "\n[rank1]: "), "ValueError: boom", BOOM.strip()),
        # Of a chain the last exception counts, by its first line.
        (CHAIN, "RuntimeError: no field u", LAST),
        # A syntax error has no header.
        ("  File 'train.py', line 1\n    def\n       ^\n" + SYNTAX, SYNTAX, SYNTAX),
    ],
)
def test_the_last_exception_is_the_line_after_its_stack(text: str, exception: str, traceback: str) -> None:
    assert parse_raised(text) == Raised(exception=exception, traceback=traceback)


def test_a_log_without_an_exception_has_none(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("An Error was expected\nbye\n")
    assert last_raised(tmp_path / "log") is None
    assert last_raised(tmp_path / "no-such-log") is None


def test_a_traceback_that_breaks_off_is_no_exception() -> None:
    assert parse_raised("Traceback (most recent call last):\n  File") is None


def test_bytes_that_are_no_text_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\n" + BOOM.encode())
    raised = last_raised(tmp_path / "log")
    assert raised is not None
    assert raised.exception == "ValueError: boom"
