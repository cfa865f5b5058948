"""Notifications of a run or a batch: which are due, and their delivery, each once.

No run waits for a delivery or fails by it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

from vastrun.launcher.core import Cause, Event, Phase, Run, Verdict
from vastrun.launcher.core.batch import Batch, BatchProgress
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.core.job import JobSpec, NotifyUrl
from vastrun.launcher.core.secrets import APPRISE, check_address, shown_address
from vastrun.launcher.core.verdict import VERDICT_OF
from vastrun.launcher.decisions.deadlines import RemainingLease
from vastrun.launcher.decisions.policy import DESTROY_TRIES
from vastrun.launcher.package_files import install_command
from vastrun.launcher.ports import Ledger

DEFAULTS, HOOK = "VASTRUN_NOTIFY", "VASTRUN_NOTIFY_COMMAND"
"""Variables: URLs, separated by spaces, for jobs without `notify`; a shell command for all jobs."""
TIMEOUT_S = 10.0
_GRACE_S = 1.0
"""Seconds beyond the timeout of a delivery that the program waits at its end."""
# `-P`: no package of the folder in which the user types is imported.
_APPRISE = (sys.executable, "-P", "-c", "from apprise.cli import main; main()")
_Delivery = Callable[[Mapping[str, Any], float], str]
"""Delivers a document within so many seconds, and returns why that failed; empty where it did not."""


class NotificationKind(StrEnum):
    """Events of which the user is notified."""

    BUDGET_50 = "budget_50"
    BUDGET_80 = "budget_80"
    BUDGET_100 = "budget_100"
    ATTEMPT = "attempt"
    """Another attempt at its job has begun."""
    END = "end"
    """It succeeded, or was stopped by its user, or pruned by its batch."""
    FAILURE = "failure"
    LOST = "lost"
    """Its machine was taken away or vanished."""
    NOT_DESTROYED = "not_destroyed"
    """Its machine may still cost money."""
    OUT_OF_REACH = "out_of_reach"
    """The provider rejects the key: its machine runs until its lease ends it."""
    BATCH_BUDGET_80 = "batch_budget_80"
    BATCH_BUDGET_100 = "batch_budget_100"
    BATCH_END = "batch_end"


@dataclass(frozen=True, kw_only=True)
class Notification:
    """A notification about a run or a batch."""

    kind: NotificationKind
    run: Run
    """The run; of a batch its oldest one, whose diary records what was sent."""
    at: float
    usd: float
    """USD spent so far."""
    limit_usd: float | None
    lease: RemainingLease | None = None
    """Remaining lease of its machine, for OUT_OF_REACH only."""
    earlier: Sequence[Run] = ()
    """Earlier attempts at its job, the nearest first."""
    earlier_usd: float = 0.0
    """Cost of the earlier attempts."""
    batch: Batch | None = None
    progress: BatchProgress | None = None
    """Progress of the batch; None: it is about a run."""

    @property
    def event(self) -> Event:
        """The event that records it in the diary. A changed budget of a batch counts again."""
        is_of_budget = self.kind in (NotificationKind.BATCH_BUDGET_80, NotificationKind.BATCH_BUDGET_100)
        memo = _budget_memo(self.kind, self.limit_usd or 0.0) if is_of_budget else str(self.kind)
        run, text = self.run, f"notified: {memo}"
        return Event(run_id=run.id, at=self.at, phase=run.phase, text=text, usd=self.usd, told=memo)


BUDGET_SHARES: Mapping[NotificationKind, float] = {
    NotificationKind.BUDGET_50: 0.5,
    NotificationKind.BUDGET_80: 0.8,
    NotificationKind.BUDGET_100: 1.0,
}
"""The share of `limits.usd` at which each is reached, in rising order."""

ENDING_OF: Mapping[Verdict, NotificationKind] = {
    **dict.fromkeys((Verdict.SUCCEEDED, Verdict.STOPPED, Verdict.PRUNED), NotificationKind.END),
    **dict.fromkeys((Verdict.FAILED, Verdict.HUNG, Verdict.LIMIT), NotificationKind.FAILURE),
    **dict.fromkeys((Verdict.UNKNOWN, Verdict.NO_OFFER), NotificationKind.FAILURE),
    **dict.fromkeys((Verdict.PREEMPTED, Verdict.LOST, Verdict.OUTPUTS_LOST), NotificationKind.LOST),
}


def kinds_due(
    run: Run, limit_usd: float | None, spent_usd: float, sent: Mapping[str, float], *, is_retry: bool = False
) -> list[NotificationKind]:
    """Return the kinds that are due and were not sent yet. Of the budget's, only the highest.

    `spent_usd`: cost of the run so far, with all of its nodes; `sent`: epoch seconds of what was sent. A
    batch tells of its budget and its end itself; of its runs, only a machine that may still cost money.
    """
    due = list[NotificationKind]()
    if limit_usd is not None and not run.batch:
        # The lease stops a run a little before its money is gone, to leave time for the download.
        share = 1.0 if run.cause is Cause.MONEY_LIMIT else spent_usd / limit_usd
        # The cost falls when a machine turns out to have ended earlier: a lower threshold is then no news.
        highest_sent = max((at for kind, at in BUDGET_SHARES.items() if kind in sent), default=0.0)
        due = [kind for kind, at in BUDGET_SHARES.items() if highest_sent < at <= share][-1:]
    if run.phase is Phase.ENDED:
        due += [] if run.batch else [ENDING_OF[VERDICT_OF[run.cause]]]
    elif is_retry and not run.batch:
        due.append(NotificationKind.ATTEMPT)
    if run.phase is Phase.DESTROY and run.destroy_tries >= DESTROY_TRIES:
        due.append(NotificationKind.NOT_DESTROYED)
    return [kind for kind in due if kind not in sent]


def batch_kinds_due(
    limit_usd: float | None,
    spent_usd: float,
    sent: Mapping[str, float],
    started_at: float,
    *,
    is_used_up: bool,
    is_over: bool,
) -> Iterator[NotificationKind]:
    """Yield the kinds of a batch that are due and were not sent yet.

    A changed budget counts again, as does an end after a run was started since (`started_at`: the newest).
    """
    near, full = NotificationKind.BATCH_BUDGET_80, NotificationKind.BATCH_BUDGET_100
    if limit_usd is not None and _budget_memo(full, limit_usd) not in sent:
        if is_used_up or spent_usd >= limit_usd:
            yield full
        elif spent_usd >= 0.8 * limit_usd and _budget_memo(near, limit_usd) not in sent:
            yield near
    if is_over and started_at >= sent.get(NotificationKind.BATCH_END, float("-inf")):
        yield NotificationKind.BATCH_END


def _budget_memo(kind: NotificationKind, limit_usd: float) -> str:
    return f"{kind} of {limit_usd:g}"


class DiaryNotifier:
    """Sends each notification of a run or a batch once; the diary records it, and this object when the diary
    cannot be written."""

    def __init__(self, spec: JobSpec, sender: Sender | None, ledger: Ledger) -> None:
        self._spec, self._ledger = spec, ledger
        self._sender = sender if sender is not None and sender.shown_addresses(spec) else None
        self._sent: dict[str, float] | None = None

    def send(self, run_id: str, due: Callable[[Mapping[str, float]], Iterable[Notification]]) -> None:
        """Send the notifications that are due. Never raises, never waits.

        `run_id`: the run with the diary; `due` gets the epoch seconds of what was sent, by what it recorded.
        """
        if self._sender is None:
            return
        if self._sent is None:
            self._sent = {}
            with suppress(StorageError):
                self._sent = {event.told: event.at for event in self._ledger.events(run_id) if event.told}
        for notification in list(due(self._sent)):
            event = notification.event
            # Marked first: a sender that fails must not be called again at each poll.
            self._sent[event.told] = event.at
            self._sender.send(notification, self._spec)
            with suppress(StorageError):
                self._ledger.add_event(event)


class Sender:
    """Sends notifications, each in a separate thread. `say` gets one line about each failing address;
    `document_of` words a notification.

    A run never depends on it: only `check` raises, and only `close` waits.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        say: Callable[[str], None],
        document_of: Callable[[Notification], Mapping[str, Any]],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._environ, self._say, self._document_of = environ, say, document_of
        self._timeout_s = timeout_s
        self._sending: list[tuple[threading.Thread, str]] = []
        self._faults: dict[str, str] = {}
        """The first fault of each address; empty once it was reported."""

    def check(self, spec: JobSpec) -> None:
        """Raise UsageError when a receiver in the job has no valid address."""
        for target in self._targets(spec):
            url = self._url(target)
            if url.startswith(APPRISE):
                _check_apprise(url)

    def shown_addresses(self, spec: JobSpec) -> Sequence[str]:
        """Return the addresses of the job's notifications, without the secret parts of URLs."""
        return [shown for shown, _ in self._receivers(spec)]

    def send(self, notification: Notification, spec: JobSpec) -> None:
        """Send the notification in the background."""
        document = self._document_of(notification)
        for shown, deliver in self._receivers(spec):

            def run(shown: str = shown, deliver: _Delivery = deliver) -> None:
                if fault := deliver(document, self._timeout_s):
                    self._faults.setdefault(shown, fault)

            thread = threading.Thread(target=run, daemon=True, name="notify")
            try:
                thread.start()
            except RuntimeError as error:  # no more threads
                self._faults.setdefault(shown, str(error))
            else:
                self._sending.append((thread, shown))
        self._report()

    def close(self) -> None:
        """Wait until all notifications are delivered, failed or timed out."""
        deadline = time.monotonic() + self._timeout_s + _GRACE_S
        for thread, shown in self._sending:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._faults.setdefault(shown, "no response")
        self._sending.clear()
        self._report()

    def _receivers(self, spec: JobSpec) -> Iterator[tuple[str, _Delivery]]:
        """Yield the shown address of each receiver, and what delivers to it."""
        if self._environ.get(HOOK):
            yield f"${HOOK}", partial(_run_hook, self._environ)
        for target in self._targets(spec):
            try:
                url = self._url(target)
            except UsageError as error:  # the job was checked, but this may be another shell
                yield f"${target.url_env or DEFAULTS}", partial(lambda fault, *_: fault, str(error))
                continue
            yield shown_address(url), partial(_call_apprise if url.startswith(APPRISE) else _post, url)

    def _targets(self, spec: JobSpec) -> Sequence[NotifyUrl]:
        """Return the targets of the job, else the user's defaults."""
        return spec.notify or [NotifyUrl(url=url) for url in self._environ.get(DEFAULTS, "").split()]

    def _url(self, target: NotifyUrl) -> str:
        """Return the URL of a target. Raises UsageError, without showing the URL."""
        name = target.url_env
        url = self._environ.get(name, "").strip() if name else target.url or ""
        if name and not url:
            raise UsageError(f"notify: the variable {name} is not set", hint=f"export {name}=https://…")
        try:
            check_address(url)
        except ValueError as error:
            where = name or f"notify: in the job file and at {DEFAULTS}"
            raise UsageError(f"notify: {error}", hint=f"look at {where}") from None
        return url

    def _report(self) -> None:
        """Report each failing address once, from the thread that owns the screen."""
        for shown, fault in list(self._faults.items()):
            if fault:
                self._faults[shown] = ""
                self._say(f"could not deliver a notification to {shown}: {fault}")


def _post(url: str, document: Mapping[str, Any], timeout_s: float) -> str:
    from http.client import HTTPException  # slow to import, and most commands notify nobody
    from urllib.error import HTTPError
    from urllib.request import Request

    from vastrun.contract.limited_http import NoRedirects, limited_opener

    try:
        headers = {"Content-Type": "application/json"}
        request = Request(url, data=json.dumps(document).encode(), headers=headers, method="POST")
        with limited_opener(timeout_s, NoRedirects) as opener, opener.open(request, timeout=timeout_s):
            return ""
    except HTTPError as error:
        error.close()
        return f"HTTP status {error.code}"
    except OSError as error:
        return str(getattr(error, "reason", error)) or type(error).__name__
    except (HTTPException, ValueError) as error:
        return type(error).__name__  # its text may hold the URL


def _run_hook(environ: Mapping[str, str], document: Mapping[str, Any], timeout_s: float) -> str:
    # `eval`: the command may hold a token, and the arguments of a process are public.
    command = ("/bin/sh", "-c", f'eval "${HOOK}"')
    known = {**environ, "VASTRUN_NOTIFICATION": json.dumps(document)}
    return _run(command, known, f"{document['text']}\n", timeout_s)


def _call_apprise(url: str, document: Mapping[str, Any], timeout_s: float) -> str:
    if find_spec("apprise") is None:
        return "the package apprise is not installed"
    title, _, body = document["text"].partition("\n")
    fault = _run_apprise(url, body, timeout_s, "--title", title)
    return fault and f"{fault}; `apprise -vv -b test URL` shows why"


@cache
def _check_apprise(url: str) -> None:
    """Check that Apprise is installed and knows the URL. Raises UsageError, without showing the URL."""
    shown = shown_address(url)
    if find_spec("apprise") is None:
        hint = install_command("apprise")
        raise UsageError(f"notify: {shown} needs Apprise, which is not installed", hint=hint)
    if fault := _run_apprise(url, "", 60.0, "--dry-run"):
        hint = "https://appriseit.com lists the URL of each service"
        raise UsageError(f"notify: Apprise does not understand {shown} ({fault})", hint=hint)


def _run_apprise(url: str, body: str, timeout_s: float, *options: str) -> str:
    """Run Apprise in a process of its own, whose output, which may hold the URL, is discarded."""
    # What a service remembers between messages is not written to the disk.
    command = (*_APPRISE, "--storage-mode", "memory", *options)
    return _run(command, {**os.environ, "APPRISE_URLS": url.removeprefix(APPRISE)}, body, timeout_s)


def _run(command: Sequence[str], environ: Mapping[str, str], text: str, timeout_s: float) -> str:
    """Run a command with the text as its input. Return why it failed; empty if it did not."""
    try:
        process = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # it may show a token
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal does not end it
        )
        try:
            process.communicate(text.encode(), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"it did not end within {timeout_s:g} s"
    except OSError as error:
        return str(error)
    return f"exit code {process.returncode}" if process.returncode else ""
