"""Notifications: what a user who is not looking is told, once, whatever happens to the receiver."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.fakebox import Training
from tests.fakes import FakeClock
from tests.jobs import train_job
from tests.launcher.flow.test_provider_retry import Bank
from tests.launcher.notifications.inbox import inbox
from tests.launcher.notifications.test_events import ENDED
from tests.launcher.terminal import CRASH, JOB, Terminal
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core import Cause, Event, UserRequest
from vastrun.launcher.core.addresses import Service, address_of
from vastrun.launcher.core.errors import JobFileError, StorageError
from vastrun.launcher.core.job import NotifyUrl
from vastrun.launcher.notifications.delivery import UrlNotifier, request_for
from vastrun.launcher.notifications.events import Notification, NotificationKind
from vastrun.launcher.notifications.senders import RunNotifier
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.render.notifications import notification_text


def notified(terminal: Terminal, *urls: str) -> Terminal:
    """The terminal, with a job that names these."""
    terminal.job.write_text(JOB + "".join(["notify:\n", *(f"  - {url}\n" for url in urls)]))
    return terminal


@pytest.mark.parametrize(
    ("url", "service"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", Service.SLACK),
        ("https://ntfy.sh/topic", Service.NTFY),
        ("http://ntfy.example.org:8080/topic", Service.NTFY),
        ("ntfy+http://127.0.0.1:1/topic", Service.NTFY),
        ("slack+https://chat.example.org/hooks/x", Service.SLACK),
        ("https://example.org/ntfy", Service.WEBHOOK),
    ],
)
def test_a_url_says_which_service_it_speaks_to(url: str, service: Service) -> None:
    assert address_of(url).service is service


@pytest.mark.parametrize(
    "url",
    ["ftp://host/x", "host/x", "https:///x", "file:///etc/passwd", "https://me:pw@host/", "http://h:x/"],
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


def test_a_failure_says_its_cause(tmp_path: Path) -> None:
    with inbox() as there:
        notified(Terminal(tmp_path, CRASH), there.url).launch()
    (letter,) = there.letters
    assert (letter.document["event"], letter.document["cause"]) == ("failure", "signal")
    assert "SIGSEGV" in letter.document["text"]


def test_each_threshold_of_the_budget_is_told_on_the_way(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = Terminal(tmp_path, Training(seconds=10_000, steps=10_000))
        notified(terminal, there.url).launch("--set", "limits.usd=0.2", "--set", "train.steps=10000")
    assert sorted(there.events) == ["budget_100", "budget_50", "budget_80", "failure"]


def test_a_resumed_run_is_not_told_of_twice(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = notified(Terminal(tmp_path, Training(seconds=10_000, steps=10_000)), there.url)
        terminal.at(120.0, lambda: terminal.ledger.ask(terminal.ledger.runs()[0].id, UserRequest.DETACH))
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
    notifier = UrlNotifier({}, said.append, notification_text, timeout_s=2.0)
    with inbox(slow=True) as there:
        spec = train_job(notify=(NotifyUrl(url=there.url),))
        notifier.send(
            Notification(kind=NotificationKind.END, run=ENDED, at=0.0, usd=0.1, limit_usd=None), spec
        )
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


def test_ntfy_gets_a_title_and_a_text(tmp_path: Path) -> None:
    with inbox() as there:
        notified(Terminal(tmp_path, CRASH), f"ntfy+{there.url}/topic").launch()
    (letter,) = there.letters
    assert letter.headers["Title"].endswith(": FAILED")
    assert letter.headers["Priority"] == "high"
    assert "SIGSEGV" in letter.body.decode()


def test_slack_gets_a_message_whose_special_characters_are_escaped() -> None:
    run = replace(ENDED, cause=Cause.SIGNAL, detail="a < b & c")
    notification = Notification(kind=NotificationKind.FAILURE, run=run, at=0.0, usd=0.1, limit_usd=None)
    text, address = notification_text(notification), address_of("https://hooks.slack.com/services/x")
    request = request_for(text, notification.kind, address)
    assert isinstance(request.data, bytes)
    assert b"a &lt; b &amp; c" in request.data
    assert text.title.encode() in request.data


def test_a_lost_machine_and_the_run_that_follows_it_are_told_of(tmp_path: Path) -> None:
    with inbox() as there:
        terminal = notified(Terminal(tmp_path), there.url)
        terminal.at(8.0, terminal.market.vanish)
        terminal.launch("--set", "retry.lost=1")
    told = {(letter.document["event"], letter.document["verdict"]) for letter in there.letters}
    assert told == {("lost", "LOST"), ("end", "SUCCEEDED")}
    assert len(there.letters) == 2


def test_a_variable_that_is_gone_when_the_run_is_resumed_costs_one_line(tmp_path: Path) -> None:
    terminal = notified(Terminal(tmp_path), "{url_env: HOOK}")
    terminal.environ["HOOK"] = "https://ntfy.sh/never-reached"
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
    terminal = notified(Terminal(tmp_path), "https://ntfy.sh/token-4711", "{url_env: HOOK}")
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
        notifier = UrlNotifier({}, said.append, notification_text)
        spec = train_job(notify=(NotifyUrl(url=there.url),))
        notifications = RunNotifier(spec, notifier, cast(Ledger, FullDisk()), FakeClock())
        notifications.send_due(ENDED, lambda _: 0.0)
        notifications.send_due(ENDED, lambda _: 0.0)
        notifier.close()
    assert there.events == ["end"]
    assert said == []
