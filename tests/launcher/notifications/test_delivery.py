"""Notifications: what a user who is not looking is told, once, whatever happens to the receiver."""

import json
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from tests.fakebox import Training
from tests.jobs import train_job
from tests.launcher.flow.test_provider_retry import Bank
from tests.launcher.notifications.inbox import inbox
from tests.launcher.notifications.test_events import ENDED
from tests.launcher.terminal import CRASH, JOB, Terminal
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core import Event
from vastrun.launcher.core.errors import JobFileError, StorageError
from vastrun.launcher.core.job import NotifyUrl
from vastrun.launcher.notifications import DiaryNotifier, Notification, NotificationKind, Sender
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.render.notifications import notification_document

END = Notification(kind=NotificationKind.END, run=ENDED, at=0.0, usd=0.1, limit_usd=None)


def notified(terminal: Terminal, *urls: str) -> Terminal:
    """The terminal, with a job that names these."""
    terminal.job.write_text(JOB + "".join(["notify:\n", *(f"  - {url}\n" for url in urls)]))
    return terminal


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/x",
        "slack+https://h/x",
        "host/x",
        "https:///x",
        "file:///etc/passwd",
        "https://me:pw@host/",
        "http://h:x/",
    ],
)
def test_what_cannot_be_addressed_is_a_fault_of_the_job_file_that_does_not_repeat_it(url: str) -> None:
    with pytest.raises(JobFileError) as caught:
        load_job(f"{JOB}notify: ['{url}']\n", "job.yaml")
    assert "notify[0].url: expected a URL" in str(caught.value)
    assert url not in str(caught.value)


def test_an_entry_has_either_a_url_or_a_variable() -> None:
    both = "notify: [{url: 'https://a.b/', url_env: A}, {}]\n"
    with pytest.raises(JobFileError) as caught:
        load_job(JOB + both, "job.yaml")
    assert [fault.split(": ")[1] for fault in caught.value.faults] == ["notify[0]", "notify[1]"]


def test_the_end_reaches_a_webhook_with_verdict_cost_and_outputs(tmp_path: Path) -> None:
    with inbox() as there:
        end = notified(Terminal(tmp_path), f"{there.url}/hook").launch()
    assert end.exit_code == 0
    (letter,) = there.letters
    assert letter.path == "/hook"
    said = letter.document
    assert (said["event"], said["verdict"], said["job"]) == ("end", "SUCCEEDED", "demo")
    assert said["usd"] > 0
    assert said["outputs"] == str(tmp_path / "out")


def test_a_failure_says_its_cause_and_another_attempt_where_it_begins_and_what_all_cost(
    tmp_path: Path,
) -> None:
    with inbox() as there:
        terminal = notified(Terminal(tmp_path, CRASH, Training()), there.url)
        terminal.launch("--set", "retry.signal=1")
    failure, again, end = (
        letter.document for letter in sorted(there.letters, key=lambda one: one.document["at"])
    )
    assert (failure["event"], failure["cause"], failure["attempt"]) == ("failure", "signal", 1)
    assert "SIGSEGV" in failure["text"] and "attempts" not in failure["text"]
    assert again["event"] == "attempt"
    assert f"attempt 2 begins, step 10 of 10, ${failure['usd']:.3f} so far" in again["text"]
    assert end["usd_all_attempts"] == pytest.approx(failure["usd"] + end["usd"], abs=1e-3)
    assert f"; ${end['usd_all_attempts']:.3f} for all 2 attempts" in end["text"]


def test_each_threshold_of_the_budget_is_told_on_the_way(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = Terminal(tmp_path, Training(seconds=10_000, steps=10_000))
        notified(terminal, there.url).launch("--set", "limits.usd=0.2", "--set", "train.steps=10000")
    assert sorted(there.events) == ["budget_100", "budget_50", "budget_80", "failure"]


def test_a_resumed_run_is_not_told_of_twice(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = notified(Terminal(tmp_path, Training(seconds=10_000, steps=10_000)), there.url)
        terminal.at(120.0, lambda: signal.raise_signal(signal.SIGHUP))
        terminal.launch("--set", "limits.usd=0.2", "--set", "train.steps=10000")
        assert there.events == ["budget_50"]
        terminal.type("resume", "last")
    assert there.events.count("budget_50") == 1


@pytest.mark.parametrize("status", [301, 404, 500])
def test_an_address_that_refuses_costs_one_line_and_no_run(tmp_path: Path, status: int) -> None:
    with inbox(status) as there:
        end = notified(Terminal(tmp_path), f"{there.url}/secret").launch()
    assert end.exit_code == 0
    lines = [line for line in end.stderr.splitlines() if "notification" in line]
    assert lines == [f"could not deliver a notification to {there.url}/…: HTTP status {status}"]
    assert [letter.method for letter in there.letters] == ["POST"]


def test_an_address_where_nobody_listens_costs_one_line_and_no_run(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    end = notified(Terminal(tmp_path), f"http://127.0.0.1:{port}/secret").launch()
    assert end.exit_code == 0
    assert end.stderr.count("could not deliver a notification to") == 1
    assert "secret" not in end.stderr


def test_a_slow_address_does_not_hold_up_the_sender() -> None:
    said: list[str] = []
    notifier = Sender({}, said.append, notification_document, timeout_s=2.0)
    with inbox(slow=True) as there:
        spec = train_job(notify=(NotifyUrl(url=there.url),))
        notifier.send(END, spec)
        assert said == []  # it has not been waited for
        notifier.close()
    (line,) = said
    assert "timed out" in line or "does not answer" in line


def test_a_url_given_by_a_variable_is_stored_nowhere(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = notified(Terminal(tmp_path), "{url_env: HOOK}")
        terminal.environ["HOOK"] = f"{there.url}/token-4711"
        terminal.launch()
    assert there.letters[0].path == "/token-4711"
    left = [path for path in tmp_path.rglob("*") if path.is_file() and b"token-4711" in path.read_bytes()]
    assert left == []


def test_a_variable_that_is_not_set_is_told_before_anything_is_rented(tmp_path: Path) -> None:
    terminal = notified(Terminal(tmp_path), "{url_env: HOOK}")
    end = terminal.launch()
    assert "HOOK is not set" in end.stdout + end.stderr
    assert terminal.market.bill_usd == 0


def test_without_notify_the_default_of_the_user_is_told(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = Terminal(tmp_path)
        terminal.environ["VASTRUN_NOTIFY"] = f"{there.url}/a  {there.url}/b"
        terminal.launch()
    assert sorted(letter.path for letter in there.letters) == ["/a", "/b"]


def test_a_command_of_the_user_gets_the_text_and_the_document(tmp_path: Path) -> None:
    terminal, told = Terminal(tmp_path), tmp_path / "told"
    terminal.environ["VASTRUN_NOTIFY_COMMAND"] = (
        f'cat >"{told}"; printf %s "$VASTRUN_NOTIFICATION" >"{told}.json"'
    )
    assert terminal.launch().exit_code == 0
    assert ": SUCCEEDED\njob demo on" in told.read_text()
    assert json.loads(Path(f"{told}.json").read_text())["event"] == "end"


def test_a_command_that_fails_costs_one_line_without_its_text(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.environ["VASTRUN_NOTIFY_COMMAND"] = "echo token-4711 >&2; exit 3"
    end = terminal.launch()
    lines = [line for line in end.stderr.splitlines() if "notification" in line]
    assert lines == ["could not deliver a notification to $VASTRUN_NOTIFY_COMMAND: exit code 3"]
    assert "token-4711" not in end.output + end.stderr


def test_a_command_is_in_no_argument_and_ends_in_time(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    said: list[str] = []
    command = f'tr "\\0" " " </proc/$$/cmdline >"{seen}"; sleep 60; : token-4711'
    sender = Sender({"VASTRUN_NOTIFY_COMMAND": command}, said.append, notification_document, timeout_s=1.0)
    sender.send(END, train_job())
    sender.close()
    assert said == ["could not deliver a notification to $VASTRUN_NOTIFY_COMMAND: it did not end within 1 s"]
    assert "VASTRUN_NOTIFY_COMMAND" in seen.read_text() and "token-4711" not in seen.read_text()


def test_a_lost_machine_and_the_run_that_follows_it_are_told_of(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = notified(Terminal(tmp_path), there.url)
        terminal.at(8.0, terminal.market.vanish)
        terminal.launch("--set", "retry.lost=1")
    told = {(letter.document["event"], letter.document["verdict"]) for letter in there.letters}
    assert told == {("lost", "LOST"), ("attempt", None), ("end", "SUCCEEDED")}
    assert len(there.letters) == 3


def test_a_variable_that_is_gone_when_the_run_is_resumed_costs_one_line(tmp_path: Path) -> None:
    terminal = notified(Terminal(tmp_path), "{url_env: HOOK}")
    terminal.environ["HOOK"] = "https://chat.example/never-reached"
    terminal.launch("--detach")
    del terminal.environ["HOOK"]
    end = terminal.type("resume", "last")
    assert end.exit_code == 0
    assert end.stderr.count("HOOK is not set") == 1


def test_a_machine_that_cannot_be_ended_is_told(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = notified(Terminal(tmp_path), there.url)
        terminal.market.deaf = True
        terminal.launch()
    assert there.events[-1] == "not_destroyed"
    assert "vastrun resume" in there.letters[-1].document["text"]


def test_a_machine_that_is_left_to_its_lease_is_told_once_with_its_end_and_its_cost(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = notified(Terminal(tmp_path), there.url)
        terminal.market = bank = Bank(terminal.clock, [Training(seconds=600)], usd_per_hour=3.6)
        terminal.launch("--detach")
        bank.account = None
        terminal.type("resume", "last")
        terminal.type("resume", "last")
    assert there.events == ["out_of_reach"]
    document = there.letters[0].document
    assert document["lease_ends_at"] > terminal.clock.now()
    assert "at the latest, for at most $2" in document["text"]
    assert "vastrun resume" in document["text"]


def test_a_plan_shows_no_url(tmp_path: Path) -> None:
    terminal = notified(Terminal(tmp_path), "https://chat.example/token-4711", "{url_env: HOOK}")
    document = terminal.document("plan", str(terminal.job))
    assert document["job"]["notify"] == [
        {"url": "<secret>", "url_env": None},
        {"url": None, "url_env": "HOOK"},
    ]
    assert "token-4711" not in repr(load_job(terminal.job.read_text(), "job.yaml"))


class FullDisk:
    """A ledger that can neither be read nor written."""

    def events(self, run_id: str) -> Sequence[Event]:
        raise StorageError("no space left on device")

    def add_event(self, event: Event) -> None:
        raise StorageError("no space left on device")


def test_a_diary_that_cannot_be_written_keeps_nobody_from_being_told_once() -> None:
    said: list[str] = []
    with inbox() as there:
        notifier = Sender({}, said.append, notification_document)
        spec = train_job(notify=(NotifyUrl(url=there.url),))
        notifications = DiaryNotifier(spec, notifier, cast(Ledger, FullDisk()))
        for _ in range(2):
            notifications.send(ENDED.id, lambda sent: [] if "end" in sent else [END])
        notifier.close()
    assert there.events == ["end"]
    assert said == []
