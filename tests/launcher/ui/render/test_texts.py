"""What the commands print, piece by piece."""

import fcntl
import os
import random
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from decimal import Decimal

import pyte
import pytest

from tests.jobs import train_job
from tests.runs import a_run
from tests.waiting import LONGEST_S
from vastrun.launcher.commands.explanation import Explanation
from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Cost, Phase, Proof, Run
from vastrun.launcher.core.verdict import EXIT_INTERRUPTED, EXIT_TEARDOWN_NOT_CONFIRMED
from vastrun.launcher.gate.text import printable
from vastrun.launcher.ui.render.amounts import duration, facts, short, table, usd, wrapped
from vastrun.launcher.ui.render.costs import costs_table
from vastrun.launcher.ui.render.loglines import first_error, parse_line
from vastrun.launcher.ui.render.verdict import verdict_line
from vastrun.launcher.ui.render.why import explanation_text

RUN = a_run(spec_json=dump_job(train_job()), phase=Phase.ENDED)


@pytest.mark.parametrize(
    ("proofs", "cause", "line"),
    [
        (("ranks", "exit", "success.exit_code"), None, "SUCCEEDED (by exit code only)"),
        (("ranks", "success.exit_code", "success.files"), None, "SUCCEEDED"),
        (("ranks", "success.steps"), None, "SUCCEEDED"),
        (("ranks", "record", "steps", "loss"), None, "SUCCEEDED"),
        (("ranks", "success.exit_code"), Cause.STOPPED, "STOPPED"),
        ((), None, "SUCCEEDED"),
    ],
)
def test_the_verdict_says_when_only_the_exit_code_was_checked(
    proofs: tuple[str, ...], cause: Cause | None, line: str
) -> None:
    told = tuple(Proof(name=name, holds=True, text="") for name in proofs)
    assert verdict_line(RunRow(run=replace(RUN, cause=cause, proofs=told), cost=Cost())) == line


@pytest.mark.parametrize(("failed", "folder"), [(0, "/o"), (1, "/o/node-1")])
def test_why_says_where_the_evidence_of_the_node_lies_that_failed(failed: int, folder: str) -> None:
    run = replace(RUN, cause=Cause.LOST, failed_node=failed)
    shown = RunRow(run=run, cost=Cost(), nodes=[replace(run, id="n1", node=1, out_dir="/o/node-1")])
    said = explanation_text(Explanation(row=shown, outcome=None, advice="", stacks=()))
    assert f"{failed}; its log and evidence: {folder}\n" in said


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (59.94, "59.9s"),
        (59.96, "1m 00s"),
        (92.4, "1m 32s"),
        (7500, "2h 05m"),
        (273600, "3d 04h"),
    ],
)
def test_durations_use_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "$0.00"), (0.0123, "$0.012"), (0.9994, "$0.999"), (0.9995, "$1.00"), (3.6, "$3.60")],
)
def test_dollars_below_one_show_tenths_of_a_cent(amount: float, text: str) -> None:
    assert usd(amount) == text


@pytest.mark.parametrize("seed", range(20))
def test_what_a_table_of_costs_shows_adds_up_in_both_directions(seed: int) -> None:
    chance = random.Random(seed)
    costs = [
        Cost(
            gpu_usd=chance.random() * 2, storage_usd=chance.random() / 100, traffic_usd=chance.random() / 1000
        )
        for _ in range(9)
    ]
    rented = replace(RUN, rented_at=0.0, released_at=chance.random() * 9999)
    rows = [RunRow(run=rented, cost=cost) for cost in costs]
    _, *lines = costs_table(rows, 0.0).splitlines()
    numbers = [list(map(Decimal, re.findall(r"\d+\.\d+", line))) for line in lines]
    *runs, total = numbers
    assert [sum(column) for column in zip(*runs, strict=True)] == total
    for (_, *parts, cost), row in zip(runs, rows, strict=True):
        assert sum(parts) == cost
        assert abs(float(cost) - row.usd) <= 0.0005 + 1e-9


def test_columns_are_aligned_and_trail_no_spaces() -> None:
    lines = table(("NAME", "N"), [("a", "10"), ("long", "9")], right=(1,)).splitlines()
    assert lines == ["NAME   N", "a     10", "long   9"]


def test_columns_that_may_be_cut_are_where_the_terminal_is_too_narrow() -> None:
    header, row = ("NAME", "WHAT", "N"), ("a" * 20, "b" * 20, "10")
    lines = {
        width: table(header, [row], cut=(1, 0), width=width).splitlines()[1] for width in (46, 40, 30, 1)
    }
    assert lines == {
        46: f"{'a' * 20}  {'b' * 20}  10",
        40: f"{'a' * 20}  {'b' * 13}…  10",
        30: f"{'a' * 15}…  {'b' * 7}…  10",
        1: f"{'a' * 7}…  {'b' * 7}…  10",
    }


@pytest.mark.parametrize(("columns", "wide"), [(40, "60"), (100, "100"), (500, "160"), (0, "80")])
def test_tables_are_as_wide_as_the_terminal_within_bounds(columns: int, wide: str) -> None:
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    program = "from vastrun.launcher.cli.output import width; print(width())"
    subprocess.run([sys.executable, "-c", program], stdout=follower, timeout=LONGEST_S, check=True)
    said = os.read(leader, 100).decode().strip()
    os.close(leader)
    os.close(follower)
    assert said == wide


def test_facts_without_a_value_are_left_out_and_long_ones_keep_their_indent() -> None:
    assert facts([("one", "1\n2"), ("none", ""), ("three", "3")]) == "one    1\n       2\nthree  3"


@pytest.mark.parametrize("name", ["漢字の実験", "🚀 走る", "e\u0301te\u0301", "👩\u200d👧 2", "plain"])
def test_columns_are_aligned_as_a_terminal_shows_cjk_emoji_and_marks(name: str) -> None:
    texts = (
        table(("NAME", "STEP", "END"), [(name, "1", "|"), ("a", "20", "|")], right=(1,)),
        table(("NAME", "END"), [(name * 9, "|"), ("a", "|")], cut=(0,), width=30),
        facts([(name, "|"), ("a", "|")]),
    )
    for text in texts:
        terminal = pyte.Screen(80, 5)
        pyte.Stream(terminal).feed(printable(text).replace("\n", "\r\n"))
        ends = [[x for x in range(80) if row[x].data == "|"] for row in terminal.buffer.values()]
        assert len({end[0] for end in ends if end}) == 1 and sum(map(len, ends)) == 2
        assert max(map(max, filter(None, ends))) < 30


@pytest.mark.parametrize(("width", "text"), [(0, "…"), (1, "…"), (2, "…"), (3, "漢…"), (4, "漢字")])
def test_a_text_is_cut_before_the_character_that_does_not_fit(width: int, text: str) -> None:
    assert short("漢字", width) == text


@pytest.mark.parametrize(
    ("run", "interrupted", "code"),
    [
        (RUN, False, 0),
        (replace(RUN, phase=Phase.TRAIN), False, 0),
        (replace(RUN, phase=Phase.DESTROY, cause=Cause.SIGNAL), False, EXIT_TEARDOWN_NOT_CONFIRMED),
        (replace(RUN, cause=Cause.HANG), False, 6),
        (replace(RUN, cause=Cause.STOPPED), True, EXIT_INTERRUPTED),
        (replace(RUN, cause=Cause.STOPPED), False, 3),
        (replace(RUN, cause=Cause.STOPPED, rented_at=1.0), True, 3),
    ],
    ids=[
        "success",
        "detached",
        "not destroyed",
        "hung",
        "interrupted first",
        "stopped first",
        "stopped later",
    ],
)
def test_the_exit_code_says_how_the_run_stands(run: Run, interrupted: bool, code: int) -> None:
    assert run.exit_code(interrupted=interrupted) == code


def test_what_is_no_log_line_is_told_from_one() -> None:
    line = parse_line("1800000000.123 rank0 a b\n")
    assert line is not None
    assert (line.at, line.source, line.text) == (1800000000.123, "rank0", "a b")
    assert parse_line("no time here") is None


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        "ValueError: x",
        "torch.OutOfMemoryError: CUDA out of memory",
        "vm NCCL WARN Call to connect failed",
        "Fatal Python error: Segmentation fault",
        "signal: rank 1 was killed by SIGSEGV",
    ],
)
def test_errors_of_many_kinds_are_found(text: str) -> None:
    raw = ["1.000 rank0 relative error 0.2; SIGSEGV would end it", f"2.000 rank1 {text}"]
    assert [line.text for line in first_error(filter(None, map(parse_line, raw)))] == [text]


def test_control_characters_are_not_printed() -> None:
    assert printable("\x1b[31mred\x1b[0m \x07bell\ttab") == "red bell\ttab"


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        *(
            (c, "")
            for c in "\u034f\u17b4\u17b5\u180b\u180e\ufe00\ufe0f\U000e0100\u200b\u2060\ufeff\U000e0001"
        ),
        *((c, " ") for c in "\u115f\u1160\u2800\u3164\uffa0\U0001d159\u00a0\u3000"),
    ],
)
def test_characters_that_nobody_sees_are_left_out_or_become_spaces(hidden: str, shown: str) -> None:
    assert printable(f"vast{hidden}run") == f"vast{shown}run"
    assert printable(f"\x1b[31m{hidden}x") == f"{shown}x"


def test_of_many_marks_on_one_character_the_first_stay() -> None:
    marked = "a" + "\u0301\u0302\u20dd" * 100 + "b"
    assert printable(marked) == "a\u0301\u0302\u20dd\u0301b"
    assert (
        printable("\u0e17\u0e35\u0e48 caf\u00e9 \u05e9\u05c1\u05b8")
        == "\u0e17\u0e35\u0e48 caf\u00e9 \u05e9\u05c1\u05b8"
    )


def test_long_lines_of_a_terminal_break_at_spaces_but_for_commands_to_copy() -> None:
    fact, command = (
        "metric  no run reported loss: call beat(...)",
        "try  vastrun batch retry widths --cause signal",
    )
    assert (
        wrapped(f"{fact}\n{command}", 34)
        == f"metric  no run reported loss: call\n        beat(...)\n{command}"
    )
    assert wrapped(fact, 200) == fact
