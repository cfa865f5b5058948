"""Notifications by Apprise: the same events and bounds as the others, and a URL that appears nowhere."""

from pathlib import Path

import pytest

from tests.jobs import train_job
from tests.launcher.notifications.inbox import inbox
from tests.launcher.notifications.test_events import ENDED
from tests.launcher.terminal import JOB, Terminal
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core.errors import JobFileError, UsageError
from vastrun.launcher.core.job import NotifyUrl
from vastrun.launcher.core.secrets import check_address, shown_address
from vastrun.launcher.notifications import Notification, NotificationKind, Sender
from vastrun.launcher.ui.render.notifications import notification_document

needs_apprise = pytest.mark.needs("apprise")
TOKEN = "token-4711"


def json_url(inbox_url: str) -> str:
    """Apprise's own JSON message to an inbox, with a token as its path."""
    return f"apprise+json://{inbox_url.removeprefix('http://')}/{TOKEN}"


def notified(terminal: Terminal, url: str) -> Terminal:
    """The terminal, with a job that gives the URL by a variable."""
    terminal.job.write_text(f"{JOB}notify: [{{url_env: CHAT}}]\n")
    terminal.environ["CHAT"] = url
    return terminal


def test_a_url_of_apprise_is_shown_without_anything_but_its_scheme() -> None:
    check_address("apprise+tgram://12345:secret/678")
    assert shown_address("apprise+tgram://12345:secret/678") == "apprise+tgram://…"


@pytest.mark.parametrize("url", ["apprise+", "apprise+secret", "apprise+json://a b", "apprise+json://ü"])
def test_a_malformed_url_of_apprise_is_a_fault_of_the_job_file_that_does_not_repeat_it(url: str) -> None:
    with pytest.raises(JobFileError) as caught:
        load_job(f"{JOB}notify: ['{url}']\n", "job.yaml")
    assert "notify[0].url: expected a URL that begins with" in str(caught.value)
    assert f"{url}'" not in str(caught.value)


@needs_apprise
def test_the_end_of_a_run_reaches_a_service_of_apprise(tmp_path: Path) -> None:
    with inbox() as there:
        notified(Terminal(tmp_path), json_url(there.url)).launch()
    (letter,) = there.letters
    assert letter.path.strip("/") == TOKEN
    assert letter.document["title"].split(": ")[1] == "SUCCEEDED"
    assert "job demo on" in letter.document["message"]


@needs_apprise
def test_the_url_is_in_no_file_and_no_output(tmp_path: Path) -> None:
    with inbox(500) as there:
        end = notified(Terminal(tmp_path), json_url(there.url)).launch()
    assert there.letters
    left = [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert left == []
    assert TOKEN not in end.output + end.stderr


@needs_apprise
def test_a_service_that_refuses_costs_one_line_and_no_run(tmp_path: Path) -> None:
    with inbox(500) as there:
        end = notified(Terminal(tmp_path), json_url(there.url)).launch()
    assert end.exit_code == 0
    lines = [line for line in end.stderr.splitlines() if "notification" in line]
    assert lines == [
        "could not deliver a notification to apprise+json://…: exit code 1; "
        "`apprise -vv -b test URL` shows why"
    ]


@needs_apprise
def test_a_slow_service_does_not_hold_up_the_sender() -> None:
    said: list[str] = []
    notifier = Sender({}, said.append, notification_document, timeout_s=1.0)
    with inbox(slow=True) as there:
        spec = train_job(notify=(NotifyUrl(url=json_url(there.url)),))
        notifier.send(
            Notification(kind=NotificationKind.END, run=ENDED, at=0.0, usd=0.1, limit_usd=None), spec
        )
        assert said == []  # it has not been waited for
        notifier.close()
    (line,) = said
    assert line.startswith("could not deliver a notification to apprise+json://…: it did not end within 1 s")


@needs_apprise
@pytest.mark.parametrize("url", ["apprise+nosuchservice://secret/x", "apprise+tgram://secret"])
def test_a_url_that_apprise_does_not_know_is_an_error_before_money_is_spent(url: str, tmp_path: Path) -> None:
    terminal = notified(Terminal(tmp_path), url)
    end = terminal.launch()
    assert end.exit_code == 5  # its plan failed
    assert f"Apprise does not understand {url.partition(':')[0]}://…" in end.stderr
    assert "secret" not in end.stderr
    assert terminal.market.rentals == 0


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "apprise", None)
    with pytest.raises(UsageError, match="needs Apprise, which is not installed") as caught:
        Sender({"CHAT": "apprise+json://h/x"}, print, notification_document).check(
            train_job(notify=(NotifyUrl(url_env="CHAT"),))
        )
    assert "install" in caught.value.hint
