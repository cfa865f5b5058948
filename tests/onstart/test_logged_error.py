"""What is read from the end of a program's log."""

from pathlib import Path

from vastrun.onstart.logged_error import last_raised, parse_raised

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


def test_the_exception_is_the_line_after_the_stack() -> None:
    raised = parse_raised("epoch 1\n" + BOOM + "some other thread prints\n")
    assert raised is not None
    assert raised.exception == "ValueError: boom"
    assert raised.traceback == BOOM.strip()


def test_what_torch_puts_before_each_line_is_no_part_of_the_exception() -> None:
    text = (
        "step 5\n[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "ddp.py", line 19, in <module>\n[rank1]:     raise ValueError("bad shard")\n'
        "[rank1]: ValueError: bad shard\n"
    )
    raised = parse_raised(text)
    assert raised is not None
    assert raised.exception == "ValueError: bad shard"
    assert raised.traceback.startswith("Traceback")


def test_of_a_chain_the_last_exception_counts_by_its_first_line() -> None:
    raised = parse_raised(CHAIN)
    assert raised is not None
    assert raised.exception == "RuntimeError: no field u"


def test_a_syntax_error_has_no_header() -> None:
    raised = parse_raised('  File "train.py", line 1\n    def\n       ^\nSyntaxError: invalid syntax\n')
    assert raised is not None
    assert raised.exception == "SyntaxError: invalid syntax"


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
