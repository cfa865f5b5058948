"""The transcript of a run: every call is in it, nothing secret, and it holds up nothing."""

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import Training
from tests.launcher.node_world import NodeWorld
from tests.launcher.terminal import CRASH, Market, Terminal
from vastrun.contract.outcome import Outcome
from vastrun.launcher.app import App
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.core import Phase, RentalOrder, Run
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.secrets import Mask, values_in
from vastrun.launcher.gate.manifest import OWNER
from vastrun.launcher.outputs.disk import claim
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ports import Provider, Remote
from vastrun.launcher.transcript import CALLS, MAX_BYTES, CallLogSpec, Recorder, cut

RUN = "calm-heron-0001"
SECRET = "kept-from-everybody"


def lines_of(terminal: Terminal) -> list[dict[str, Any]]:
    run = terminal.ledger.runs()[0]
    return [json.loads(line) for line in Outputs(run).transcript.read_text().splitlines()]


def of_kind(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


def test_each_call_is_a_line(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, CRASH)
    terminal.launch()
    lines = lines_of(terminal)
    assert [line["kind"] for line in (lines[0], lines[-1])] == ["begin", "end"]
    verbs = {line["verb"] for line in of_kind(lines, "call")}
    assert verbs >= {"provider.search", "provider.rent", "provider.instances", "provider.connect"}
    assert verbs >= {"remote.put", "remote.write", "remote.run", "remote.read", "provider.destroy"}


def test_what_a_call_raised_is_told_and_raised(tmp_path: Path) -> None:
    class Taken(Market):
        def rent(self, order: RentalOrder) -> Any:
            raise NoOfferError("somebody else was faster")

    terminal = Terminal(tmp_path)
    terminal.market = Taken(terminal.clock, [Training()], usd_per_hour=1.0)
    assert terminal.launch().exit_code == 8
    raised = [line["error"] for line in of_kind(lines_of(terminal), "call") if "error" in line]
    assert {"type": "NoOfferError", "text": "somebody else was faster"} in raised


@pytest.mark.parametrize(("port", "name"), [(Provider, "provider"), (Remote, "remote")])
def test_no_verb_of_a_port_is_left_out(port: type, name: str) -> None:
    verbs = {verb for verb, _ in inspect.getmembers(port, inspect.isfunction) if not verb.startswith("_")}
    assert {f"{name}.{verb}" for verb in verbs} - {"remote.close"} <= CALLS.keys()


class Keeper(Terminal):
    """A terminal whose environment has a secret, which the training prints, in a run's log, too."""

    def app(self) -> App:
        return super().app().with_changes(secrets=lambda: [SECRET])


def test_its_end_tells_the_longest_gap_of_the_guard(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.guard.longest_gap_s = 1.25
    terminal.launch()
    assert lines_of(terminal)[-1]["guard_gap_s"] >= 1.25


def test_neither_a_secret_nor_the_log_is_in_it(tmp_path: Path) -> None:
    def raised(outcome: Outcome) -> Outcome:
        detail = f"died with {SECRET}\x1b[2J at https://me:password1@host/"
        return replace(outcome, reason="error", detail=detail)

    training = Training(outcome=raised, exit_code=1, says=lambda line: f"{line} said {SECRET}")
    terminal = Keeper(tmp_path, training)
    terminal.job.write_text(
        terminal.job.read_text()
        + "env: {MY_API_KEY: abcdefgh}\nnotify: https://hooks.example/services/T0/B0/xyz\n"
    )
    terminal.launch()
    run = terminal.ledger.runs()[0]
    assert "died with <secret>" in (run.detail or "") and SECRET not in (run.detail or "")
    assert not any(SECRET in event.text for event in terminal.ledger.events(run.id))
    text = Outputs(run).transcript.read_text()
    for secret in (SECRET, "abcdefgh", "services/T0", "password1", "said"):
        assert secret not in text
    assert text.isascii() and "\x1b" not in text


def test_the_secrets_of_a_job_are_known_by_their_lines() -> None:
    mask = Mask(values_in(b"TOKEN='it'\\''s a secret'\nKEY='line one\nline two of it'\n"))
    assert mask.hide("it's a secret; line two of it, then it") == "<secret>; <secret>, then it"
    assert values_in(b"TOKEN='half") == []
    assert cut("x" * 50, 20) == "x" * 10 + "[... 30 characters ...]" + "x" * 10


ROUTINE = CallLogSpec(about=lambda **told: told, is_routine=True)
OTHER = CallLogSpec()


def recorder_in(
    folder: Path, now: Callable[[], float] = lambda: 0.0, call: CallLogSpec = ROUTINE
) -> Recorder:
    claim(folder, RUN)
    return Recorder(folder, RUN, {"run": {"id": RUN}}, Mask(), now=now, calls={"call": call, "other": OTHER})


def transcript_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "transcript.jsonl").read_text().splitlines()]


def test_a_box_that_says_much_fills_no_disk_and_hides_no_decision(tmp_path: Path) -> None:
    moment = iter(range(10**9))
    recorder = recorder_in(tmp_path, lambda: next(moment) / 10)
    for number in range(3000):
        recorder.call("call", lambda **_: b"x", number=number, text="y" * 900, more=["z" * 900] * 9)
    recorder.call("other", lambda: None)
    recorder.close()
    size = (tmp_path / "transcript.jsonl").stat().st_size
    assert size <= MAX_BYTES
    kinds = [line.get("verb", line["kind"]) for line in transcript_in(tmp_path)]
    assert kinds[-2:] == ["other", "end"]


def test_calls_that_go_as_ever_are_written_once_a_minute(tmp_path: Path) -> None:
    clock = [0.0]
    recorder = recorder_in(tmp_path, lambda: clock[0])
    for second in range(130):
        clock[0] = float(second)
        recorder.call("call", lambda: b"")
    recorder.close()
    calls = [line for line in transcript_in(tmp_path) if line["kind"] == "call"]
    assert [call["at"] for call in calls] == [0, 60, 120]


def test_a_folder_that_is_not_the_runs_own_stays_as_it_is(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, RUN, {}, Mask(), now=lambda: 0.0)
    recorder.call("remote.read", lambda _: b"", "run.log")
    assert list(tmp_path.iterdir()) == []
    claim(tmp_path, RUN)
    recorder.close()
    assert [line["kind"] for line in transcript_in(tmp_path)] == ["begin", "call", "end"]


def test_a_file_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path)
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "transcript.jsonl").symlink_to(tmp_path / "elsewhere")
    recorder.call("call", lambda: b"")
    recorder.close()
    assert (tmp_path / "elsewhere").read_text() == ""


def test_a_call_that_cannot_be_told_is_made_all_the_same(tmp_path: Path) -> None:
    broken = CallLogSpec(about=lambda spec: spec.name, answer=lambda answer: answer.nothing_of_that_name)
    recorder = recorder_in(tmp_path, call=broken)
    assert recorder.call("call", lambda _: "an answer", "no job") == "an answer"


class UntellableError(NoOfferError):
    """One whose words cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_error_that_cannot_be_told_is_raised_all_the_same(tmp_path: Path) -> None:
    recorder = recorder_in(tmp_path)

    def fail() -> None:
        raise UntellableError("")

    with pytest.raises(UntellableError):
        recorder.call("call", fail)


def test_a_launcher_that_does_nothing_writes_nothing(terminal: Terminal) -> None:
    """Another one that drives the run is not disturbed."""
    terminal.launch("--detach")
    before = lines_of(terminal)
    run = terminal.ledger.runs()[0]
    from vastrun.launcher.core import Driver

    terminal.ledger.hold(run.id, Driver(who="another:1:1.0", until=terminal.clock.now() + 60))
    terminal.type("wait", "last", "--timeout", "5s")
    assert lines_of(terminal) == before


def test_a_run_that_brought_nothing_home_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    """A transcript alone is no output."""
    terminal = Terminal(tmp_path)
    terminal.market.impostors = {"host-1"}
    terminal.launch()
    second, first = terminal.ledger.runs()
    assert first.failed_in is Phase.BOOT and second.verdict == "SUCCEEDED"
    assert first.out_dir == second.out_dir
    assert (Path(second.out_dir) / OWNER).read_text().strip() == second.id
    begun = [line["run"]["id"] for line in transcript_in(Path(second.out_dir)) if line["kind"] == "begin"]
    assert begun == [first.id, second.id]


class Kept(NodeWorld):
    """A run of several nodes, each with a folder of its own."""

    def begun(self, attempts: Attempts) -> Run:
        run = super().begun(attempts)
        for row in self.rows():
            claim(Path(row.out_dir), row.id)
        return run


def test_each_node_has_its_own_calls(tmp_path: Path) -> None:
    world = Kept(tmp_path)
    run = world.launch()
    assert run.verdict == "SUCCEEDED", world.told
    for row in world.rows():
        lines = transcript_in(Path(row.out_dir))
        assert lines[0]["run"]["id"] == row.id
        rented = [line["about"]["label"] for line in lines if line.get("verb") == "provider.rent"]
        assert rented == [row.label]
        assert any(line.get("verb") == "remote.run" for line in lines)
