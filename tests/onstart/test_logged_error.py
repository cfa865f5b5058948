"""What is read from the end of a program's log."""

from pathlib import Path

import pytest

from vastrun.onstart.logged_error import Raised, last_raised

BOOM = """\
Traceback (most recent call last):
  File "train.py", line 7, in <module>
    main()
ValueError: boom"""
OF_A_RANK = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "ddp.py", line 19, in <module>
[rank1]:     raise ValueError("bad shard")
[rank1]: ValueError: bad shard"""
LAST_OF_CHAIN = """\
Traceback (most recent call last):
  File "train.py", line 5, in <module>
RuntimeError: no field u"""
CHAIN = f"""\
Traceback (most recent call last):
  File "train.py", line 3, in load
KeyError: 'u'

During handling of the above exception, another exception occurred:

{LAST_OF_CHAIN}
with more to say
"""


@pytest.mark.parametrize(
    ("text", "exception", "traceback"),
    [
        (f"epoch 1\n{BOOM}\nsome other thread prints\n", "ValueError: boom", BOOM),
        (f"step 5\n{OF_A_RANK}\n", "ValueError: bad shard", OF_A_RANK.replace("[rank1]: ", "")),
        (CHAIN, "RuntimeError: no field u", LAST_OF_CHAIN),
        (
            '  File "train.py", line 1\n    def\n       ^\nSyntaxError: invalid syntax\n',
            "SyntaxError: invalid syntax",
            "SyntaxError: invalid syntax",
        ),
    ],
    ids=["after the stack", "torch marks its lines", "the last of a chain", "a syntax error has no header"],
)
def test_the_exception_is_the_line_after_the_last_stack(
    text: str, exception: str, traceback: str, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text(text)
    assert last_raised(tmp_path / "log") == Raised(exception=exception, traceback=traceback)


@pytest.mark.parametrize(
    ("content", "exception"),
    [
        (b"An Error was expected\nbye\n", None),
        (b"Traceback (most recent call last):\n  File", None),
        (b"\xff\xfe\n" + BOOM.encode() + b"\n", "ValueError: boom"),
    ],
    ids=["no exception", "a traceback that breaks off", "no text"],
)
def test_a_log_is_read_whatever_its_bytes(content: bytes, exception: str | None, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(content)
    raised = last_raised(tmp_path / "log")
    assert (raised and raised.exception) == exception
    assert last_raised(tmp_path / "no-such-log") is None
