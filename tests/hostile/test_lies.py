"""Whatever a box says, in whatever phase, and whatever its user wants meanwhile: it comes to a good end.

Nothing is written outside of the outputs, nothing steers the terminal, nothing stays rented, no limit is
passed, and no success is made up.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from click.testing import Result

from tests.fakebox import Training
from tests.fakes import PRICE
from tests.hostile.boxes import MAX_GAP_S, LyingMarket, Since
from tests.hostile.checkpoint_lies import CHECKPOINT_LIES
from tests.hostile.lie import Lie
from tests.hostile.lies import LIES as OTHER_LIES
from tests.launcher.notifications.inbox import inbox
from tests.launcher.terminal import CRASH, Terminal
from tests.launcher.ui.report.reading import assert_sound
from vastrun.contract.checkpoint_folder import verify
from vastrun.launcher.cli import cli
from vastrun.launcher.core import Cause
from vastrun.launcher.decisions.policy import INVALID_STATUS_S, LATE_GRACE_S, LIMIT_SLACK_S

LIES = {**OTHER_LIES, **CHECKPOINT_LIES}
LIMIT_USD = 3.0
"""What the job allows."""
HONEST = Training()
SLACK_S = LIMIT_SLACK_S + LATE_GRACE_S + INVALID_STATUS_S
"""What a launcher takes at most to notice a limit, and to bring home what is there."""

Asks = Callable[[Terminal], None]


def waits(terminal: Terminal) -> None:
    """The user just waits."""


def stops(terminal: Terminal) -> None:
    terminal.press(after_s=5)


def stops_twice(terminal: Terminal) -> None:
    terminal.press(after_s=5)
    terminal.press(after_s=6)


ASKS = (waits, stops, stops_twice)
PHASES: tuple[Since, ...] = ("boot", "train", "end")
OTHERS = [(since, asks) for since in PHASES for asks in ASKS if (since, asks) != ("train", waits)]
SHARE = 1 if "FUZZ" in os.environ else 4
"""One of so many of the other phases and requests is tried with each lie; `make fuzz` tries all of them."""


def _rows() -> Iterator[ParameterSet]:
    for number, name in enumerate(LIES):
        # A sixth of them: a launch with each takes seconds.
        yield pytest.param(name, "train", waits, marks=[pytest.mark.slow] * (number % 6 > 0))
        for other, (since, asks) in enumerate(OTHERS):
            if (number + other) % SHARE == 0:
                yield pytest.param(name, since, asks, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "since", "asks"), list(_rows()))
def test_a_lie_comes_to_a_good_end(name: str, since: Since, asks: Asks, tmp_path: Path) -> None:
    terminal = lying_terminal(tmp_path, LIES[name], since)
    asks(terminal)
    launched = terminal.launch()
    assert_no_crash(launched)
    assert_a_good_end(terminal, LIES[name])


@pytest.mark.sampled(48)
@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("later", [("stop", "--now", "last"), ("resume", "last")], ids=lambda words: words[0])
def test_an_unread_lie_comes_to_a_good_end_later(name: str, later: tuple[str, ...], tmp_path: Path) -> None:
    terminal = lying_terminal(tmp_path, LIES[name], "train")
    assert_no_crash(terminal.launch("--detach"))
    terminal.clock.sleep(60)
    assert_no_crash(terminal.type(*later))
    assert_a_good_end(terminal, LIES[name])


CLAIMS = [name for name in LIES if name.startswith(("lease that ends", "clock ", "step "))]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CLAIMS)
def test_no_lie_lengthens_a_limit(name: str, tmp_path: Path) -> None:
    terminal = lying_terminal(tmp_path, LIES[name], "train", Training(seconds=1e6, obeys=False))
    launched = terminal.launch("--set", "limits.hours=0.03")
    assert_no_crash(launched)
    assert terminal.machines() == 0
    assert terminal.market.bill_usd <= (108 + LIMIT_SLACK_S + 5) / 3600 * PRICE
    assert terminal.ledger.runs()[0].cause in (Cause.TIME_LIMIT, Cause.HOST)


def test_a_box_that_boasts_of_its_speed_is_not_believed_beyond_the_plan(tmp_path: Path) -> None:
    terminal = lying_terminal(tmp_path, LIES["boasted steps"], "train", Training(seconds=60))
    terminal.launch()
    assert (terminal.ledger.runs()[0].steps_per_s or 0.0) <= 10 / 20


def test_a_step_named_like_a_notice_keeps_no_notice_from_being_sent(tmp_path: Path) -> None:
    with inbox() as kept:
        terminal = lying_terminal(tmp_path, LIES["step name like a notice"], "train", CRASH)
        terminal.environ["VASTRUN_NOTIFY"] = kept.url
        terminal.launch()
    assert kept.events == ["failure"]


def lying_terminal(folder: Path, lie: Lie, since: Since, training: Training = HONEST) -> Terminal:
    terminal = Terminal(folder)
    terminal.market = LyingMarket(terminal.clock, lie, since, training)
    return terminal


def assert_a_good_end(terminal: Terminal, lie: Lie) -> None:
    for words in (("why", "last"), ("status", "last"), ("cost",)):
        assert_no_crash(terminal.type(*words))
    assert_printable_log(terminal)
    for words in (("why", "last"), ("status",), ("status", "last")):
        json.dumps(terminal.document(*words), allow_nan=False).encode()
    run = terminal.ledger.runs()[0]
    story = [f"{event.phase}: {event.text[:100]}" for event in terminal.ledger.events(run.id)]

    assert terminal.guard.longest_gap_s <= MAX_GAP_S, story
    assert terminal.machines() == 0, story
    assert run.phase == "ended", story
    assert run.cause is not Cause.INTERNAL, story
    assert terminal.market.bill_usd <= LIMIT_USD + SLACK_S / 3600 * PRICE, story
    if run.cause is None:
        assert lie.harmless or not lie_was_told(terminal), story
        assert run.proofs, story
        assert all(proof.holds is True for proof in run.proofs), story
    assert_nothing_evil(terminal.folder)


def lie_was_told(terminal: Terminal) -> bool:
    """Whether anything of the lie is among what decides."""
    market: Any = terminal.market
    return market.since != "end" or bool(market.lie.files or market.lie.listed)


def assert_no_crash(result: Result) -> None:
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    for text in (result.stdout, result.stderr):
        assert_printable(text.split("\n"))


def assert_printable_log(terminal: Terminal) -> None:
    """The whole log is printed to a file, as to a terminal: click's runner holds it several times."""
    with TemporaryFile("w+", encoding="utf-8", newline="") as screen:
        with redirect_stdout(screen), redirect_stderr(screen), suppress(SystemExit):
            cli.main(["logs", "last"], obj=terminal.app())
        screen.seek(0)
        assert_printable(line.removesuffix("\n") for line in screen)


def assert_printable(lines: Iterable[str]) -> None:
    for line in lines:
        assert not {c for c in set(line) if not (c.isprintable() or c == "\t")}, line
        assert not line.startswith(("1700000000", "supervisor all")), line


def assert_nothing_evil(folder: Path) -> None:
    """No file of the box lies outside of the outputs, nor one among them that makes a program run."""
    assert not Path("/etc/evil").exists()
    for path in folder.rglob("*"):
        inside = path.relative_to(folder).parts
        assert not {part.casefold() for part in inside[1:]} & {".git", ".gitattributes"}, path
        if path.is_file() and path.read_bytes()[:1000] == b"evil":
            assert inside[0] == "out", path
    assert (folder / "out" / ".gitignore").read_bytes() == b"*\n"
    assert_harmless_pages(folder / "out")
    for checkpoint in (folder / "out" / "checkpoints").glob("*/"):
        assert {file.path for file in verify(checkpoint).files}, checkpoint


def assert_harmless_pages(out: Path) -> None:
    """What the launcher writes there of the run is small, and shows nothing that the box has made up."""
    for name in ("README.md", "result.json"):
        text = (out / name).read_text() if (out / name).exists() else ""
        assert len(text) < 200_000, name
        assert not {c for c in set(text) if not (c.isprintable() or c == "\n")}, name
        if name == "README.md":
            assert all(line.startswith("    ") for line in text.split("\n") if "owned" in line)
    if (out / "README.md").exists():
        assert_sound((out / "report.html").read_text())
