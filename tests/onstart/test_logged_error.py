"""What is read from the end of a program's log."""

from pathlib import Path

import pytest

from vastrun.onstart.logged_error import last_raised, parse_raised, reason_of_text

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


IN_WORKER = """\
Traceback (most recent call last):
  File "x.py", line 12, in <module>
    for b in loader: pass
  File "torch/_utils.py", line 794, in reraise
    raise exception
%s: Caught %s in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "torch/utils/data/_utils/worker.py", line 358, in _worker_loop
    data = fetcher.fetch(index)
%s
"""


def test_of_a_workers_exception_its_own_message_is_told() -> None:
    inner = "FileNotFoundError: shard-0003.tar is missing"
    raised = parse_raised(IN_WORKER % ("FileNotFoundError", "FileNotFoundError", inner) + "\nbye\n")
    assert raised is not None
    assert raised.exception == f"{inner} (in DataLoader worker process 0)"
    assert raised.traceback.endswith(f"fetcher.fetch(index)\n{inner}")


def test_of_a_chain_in_a_worker_the_last_exception_is_told() -> None:
    raised = parse_raised(IN_WORKER % ("KeyError", "RuntimeError", CHAIN.removesuffix("with more to say\n")))
    assert raised is not None
    assert raised.exception == "RuntimeError: no field u"


def test_a_workers_exception_without_its_traceback_is_told_as_it_is() -> None:
    text = IN_WORKER % ("ValueError", "ValueError", "")
    raised = parse_raised(text.partition("Original")[0])
    assert raised is not None
    assert raised.exception == "ValueError: Caught ValueError in DataLoader worker process 0."


def test_of_a_worker_that_left_unexpectedly_the_signal_is_told_that_killed_it() -> None:
    killed = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Segmentation fault. "
    gone = "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly"
    header = "Traceback (most recent call last):\n  File 'x'\n"
    raised = parse_raised(f"{header}{killed}\n\nThe above exception was the cause:\n\n{header}{gone}\n")
    assert raised is not None
    assert raised.exception == killed.strip()
    assert gone in raised.traceback
    alone = parse_raised(f"{header}{gone}\n")
    assert alone is not None
    assert alone.exception == gone


NCCL = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 9, in <module>
[rank1]: torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.cpp:77, %s
[rank1]: %s: This usually reflects what went wrong.
[rank1]: Last error:
[rank1]: %s
"""


@pytest.mark.parametrize(
    ("kind", "name", "last", "reason"),
    [
        (
            *("invalid usage", "ncclInvalidUsage"),
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a0",
            "error",
        ),
        (
            *("remote process exited or there was a network error", "ncclRemoteError"),
            "socketProgress: Connection closed by remote peer 10.0.0.2<54321>",
            "communication",
        ),
    ],
)
def test_an_error_of_nccl_has_the_reason_that_nccl_gave(kind: str, name: str, last: str, reason: str) -> None:
    raised = parse_raised(NCCL % (kind, name, last) + "more of the log\n")
    assert raised is not None
    assert raised.exception.endswith(f"NCCLUtils.cpp:77, {kind}: {last}")
    assert raised.traceback.endswith(f"Last error:\n{last}")
    assert reason_of_text(raised.exception) == reason


def test_an_error_of_nccl_without_a_reason_is_told_by_its_first_line() -> None:
    raised = parse_raised(
        (NCCL % ("unhandled cuda error", "ncclUnhandledCudaError", "")).partition("Last")[0]
    )
    assert raised is not None
    assert raised.exception.endswith("unhandled cuda error")
    assert reason_of_text(raised.exception) == "communication"


def test_a_program_that_asks_for_nccl_without_it_is_to_blame_itself() -> None:
    assert reason_of_text("RuntimeError: Distributed package doesn't have NCCL built in") == "error"
