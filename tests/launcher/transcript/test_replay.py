"""`replay` and `bugreport`: what was shown is shown again, from one file, and nothing private is in it."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Training
from tests.launcher.terminal import CRASH, HANG, Market, Terminal
from vastrun.launcher.app_context import AppContext
from vastrun.launcher.core import Event, Instance, Progress, RentalOrder, Run
from vastrun.launcher.transcript.reader import CallEntry, entries_of
from vastrun.launcher.transcript.replay import replay

BEGIN = {
    "kind": "begin",
    "at": 100.0,
    "run": {"id": "calm-heron-0001", "job": "demo", "provider": "fake", "phase": "plan", "created_at": 100.0},
}


def shown_by_launch(stderr: str) -> list[str]:
    """The lines of events: without the log, and without the lines of progress."""
    lines = [line for line in stderr.splitlines() if re.match(r" *[\d.]+\w( \d+\w)? +\$", line)]
    return [line for line in lines if "%)" not in line]


@pytest.mark.parametrize(
    "training",
    [Training(), CRASH, HANG, replace(CRASH, seconds=104.0)],
    ids=["good", "crash", "hang", "slow"],
)
def test_a_replay_shows_the_lines_that_the_launcher_showed(tmp_path: Path, training: Training) -> None:
    terminal = Terminal(tmp_path, training)
    shown = shown_by_launch(terminal.launch().stderr)
    assert any("machine destroyed" in line for line in shown)
    assert terminal.type("replay", "last").stdout.splitlines() == shown
    assert terminal.type("replay", str(tmp_path / "out" / "transcript.jsonl")).stdout.splitlines() == shown


def test_a_replay_says_what_shows_the_attempts_before_and_after(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH, CRASH, Training())
    terminal.launch("--set", "retry.signal=2")
    third, second, first = (run.id for run in terminal.ledger.runs())
    told = [terminal.type("replay", name).stderr.strip() for name in (first, second, third)]
    assert told == [
        f"this was attempt 1; the next one: vastrun replay {second}",
        f"this was attempt 2; the previous one: vastrun replay {first}; the next one: vastrun replay {third}",
        f"this was attempt 3; the previous one: vastrun replay {second}",
    ]


def test_time_is_counted_as_it_was_from_the_command_on(terminal: Terminal) -> None:
    """A launcher takes up a run that another one began."""
    terminal.launch("--detach")
    terminal.clock.sleep(7)
    kept = shown_by_launch(terminal.type("attach", "last").stderr)
    replayed = terminal.type("replay", "last").stdout.splitlines()
    assert kept and replayed[-len(kept) :] == kept


def test_calls_are_shown_on_request(terminal: Terminal) -> None:
    terminal.launch()
    said = terminal.type("replay", "last", "--calls").stdout
    assert re.search(r"provider\.rent offer=offer-1 .*\[0\.00 s\]", said)
    assert re.search(r"remote\.read path=lease\.state \[0\.00 s\]", said)


def test_a_call_is_shown_with_the_time_that_it_took(terminal: Terminal) -> None:
    class Slow(Market):
        def rent(self, order: RentalOrder) -> Instance:
            self.clock.sleep(2.5)
            return super().rent(order)

    terminal.market = Slow(terminal.clock, [Training()], usd_per_hour=3.6)
    terminal.launch()
    assert re.search(r"provider\.rent .* \[2\.50 s\]", terminal.type("replay", "last", "--calls").stdout)


def test_a_run_without_a_transcript_and_a_file_that_is_none_are_named(terminal: Terminal) -> None:
    terminal.launch()
    (terminal.folder / "out" / "transcript.jsonl").unlink()
    missing = terminal.type("replay", "last")
    assert missing.exit_code == 2 and "has no transcript" in missing.stderr
    (terminal.folder / "other").write_bytes(b"\xff\x00 no line of JSON\n" * 100)
    other = terminal.type("replay", str(terminal.folder / "other"))
    assert other.exit_code == 2 and "contains no transcript" in other.stderr
    (terminal.folder / "half.tar.gz").write_bytes(b"\x1f\x8b\x08\x00 not whole")
    half = terminal.type("replay", str(terminal.folder / "half.tar.gz"))
    assert half.exit_code == 2 and "incomplete archive" in half.stderr


class Paper:
    """A screen that keeps what it is shown."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.logs: list[str] = []

    def report(self, event: Event) -> None:
        self.events.append(event.text)

    def log(self, text: str) -> None:
        self.logs.append(text)

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        raise AssertionError("a replay shows no progress")


def played(lines: Sequence[Any]) -> Paper:
    paper = Paper()
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    replay(entries_of(raw), paper, None)
    return paper


@pytest.mark.parametrize(
    "lie",
    [
        b'{"kind": "event", "at": 101.0, "te',
        b"[" * 100_000,
        {"kind": "event", "at": "soon", "phase": "train", "text": "lie"},
        {"kind": "event", "at": 1e300, "phase": "train", "text": "lie"},
        {"kind": "event", "at": 101.0, "phase": {}, "text": "lie"},
        {"kind": "event", "at": 101.0, "phase": "train", "text": "lie", "usd": -1e9},
        {"kind": ["lie"], "at": 101.0},
        {"kind": "call", "at": 101.0, "verb": 5},
        {**BEGIN, "run": {"id": 5}},
        7,
    ],
    ids=repr,
)
def test_a_line_that_lies_is_left_out_and_all_others_are_shown(lie: Any) -> None:
    true = {"kind": "event", "at": 102.0, "phase": "train", "text": "true"}
    assert played([BEGIN, lie, true]).events == ["true"]


def test_what_this_vastrun_does_not_know_is_passed_over() -> None:
    paper = played(
        [
            {**BEGIN, "job": {"unheard": "of"}},
            {"kind": "row", "at": 101.0, "changes": {"phase": "dance", "usd_per_hour": "much"}},
            {"kind": "progress", "at": 101.0, "phase": "train", "progress": {}, "usd": 0.1},
            {"kind": "event", "at": 102.0, "phase": "dance", "text": "on"},
            {"kind": "music", "at": 103.0},
        ]
    )
    assert paper.events == ["on"]


class Desk(Terminal):
    """A desk whose folders and user have names, and whose environment has a key."""

    def app(self) -> AppContext:
        words = {str(self.folder): "~", "annabel": "<user>"}
        return replace(super().app(), secrets=lambda: ["sk-very-secret"], private_words=lambda: words)


def test_a_bug_report_is_one_file_that_says_what_is_in_it_and_replays(tmp_path: Path) -> None:
    def says(line: str) -> str:
        return f"{line} annabel sk-very-secret {tmp_path}/data abcdefgh"

    terminal = Desk(tmp_path, replace(CRASH, says=says))
    terminal.job.write_text(terminal.job.read_text() + "env: {MY_API_KEY: abcdefgh}\n")
    shown = shown_by_launch(terminal.launch().stderr)
    file = tmp_path / "report.tar.gz"
    end = terminal.type("bugreport", "last", "--output", str(file))
    assert end.exit_code == 0, end.stderr
    with tarfile.open(file) as archive:
        texts = {Path(member.name).name: read(archive, member) for member in archive}
    assert {"transcript.jsonl", "run.json", "events.jsonl", "job.json", "outcome.json"} <= texts.keys()
    assert {"log.txt", "versions.json", "doctor.txt"} <= texts.keys()
    for name, text in texts.items():
        assert f"{name} " in end.stdout
        assert not any(
            private in text for private in ("annabel", "sk-very-secret", "abcdefgh", str(tmp_path))
        ), name
    assert json.loads(texts["run.json"])["verdict"] == "FAILED"
    assert "step 9 <user> <secret> ~/data <secret>" in texts["log.txt"]
    hidden = [
        line.replace("annabel", "<user>")
        .replace("sk-very-secret", "<secret>")
        .replace("abcdefgh", "<secret>")
        for line in shown
    ]
    replayed = terminal.type("replay", str(file)).stdout.splitlines()
    assert replayed == [line.replace(str(tmp_path), "~") for line in hidden]


def read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = archive.extractfile(member) or io.BytesIO()
    return content.read().decode()


def test_a_log_is_left_out_where_the_secrets_of_the_job_are_not_known_any_more(terminal: Terminal) -> None:
    from tests.fake_outputs import FakePacker
    from vastrun.launcher.core.errors import UsageError

    class Forgetful(FakePacker):
        def secrets(self, spec: object, run: object = None) -> bytes:
            raise UsageError("TOKEN is not set")

    terminal.launch()
    app = terminal.app().with_factories(packer=lambda _: Forgetful(terminal.folder))
    terminal.app = lambda: app  # type: ignore[method-assign]
    file = terminal.folder / "report.tar.gz"
    assert terminal.type("bugreport", "last", "--output", str(file)).exit_code == 0
    with tarfile.open(file) as archive:
        names = {Path(name).name for name in archive.getnames()}
    assert "transcript.jsonl" in names and "log.txt" not in names


def test_entries_are_nouns() -> None:
    call = {"kind": "call", "at": 1.0, "verb": "provider.rent", "error": {"type": "A", "text": "b"}}
    (entry,) = entries_of([json.dumps(call).encode()])
    assert isinstance(entry, CallEntry) and entry.error is not None and entry.error.text == "b"


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)
