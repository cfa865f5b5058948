"""Delivery of notifications by a webhook, by Apprise, and by a command of the user; each is sent once.

No run waits for it or fails by it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from typing import Any

from vastrun.launcher.core.addresses import APPRISE, check_address, shown_address
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.core.job import JobSpec, NotifyUrl
from vastrun.launcher.notifications.events import Notification
from vastrun.launcher.package_files import install_command
from vastrun.launcher.ports import Ledger

DEFAULTS, HOOK = "VASTRUN_NOTIFY", "VASTRUN_NOTIFY_COMMAND"
"""Variables: URLs, separated by spaces, for jobs without `notify`; a shell command for all jobs."""
TIMEOUT_S = 5.0
_GRACE_S = 1.0
"""Seconds beyond the timeout of a request that the program waits at its end."""
_FAULTS = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)
"""Errors that the code of a service may raise for an unexpected response."""
_silence = threading.local()


class DiaryNotifier:
    """Sends each notification of a run or a batch once; the diary records it, and this object when the diary
    cannot be written."""

    def __init__(self, spec: JobSpec, sender: Sender | None, ledger: Ledger) -> None:
        self._spec, self._ledger = spec, ledger
        self._sender = sender if sender is not None and sender.has_targets(spec) else None
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
        self._reported: set[str] = set()

    def check(self, spec: JobSpec) -> None:
        """Raise UsageError when a receiver in the job has no valid address."""
        for target in self._targets(spec):
            url = self._url(target)
            if url.startswith(APPRISE):
                _check_apprise(url)

    def has_targets(self, spec: JobSpec) -> bool:
        """Return whether the job has a receiver."""
        return bool(self._targets(spec)) or bool(self._environ.get(HOOK))

    def shown_addresses(self, spec: JobSpec) -> Sequence[str]:
        """Return the addresses of the job's notifications, without the secret parts of URLs."""
        shown = [f"${HOOK}"] if self._environ.get(HOOK) else []
        for target in self._targets(spec):
            with suppress(UsageError):
                shown.append(shown_address(self._url(target)))
        return shown

    def send(self, notification: Notification, spec: JobSpec) -> None:
        """Send the notification in the background."""
        document = self._document_of(notification)
        if self._environ.get(HOOK):
            self._start(f"${HOOK}", partial(_run_hook, self._environ, document, self._timeout_s))
        for target in self._targets(spec):
            try:
                url = self._url(target)
            except UsageError as error:  # the job was checked, but this may be another shell
                self._faults.setdefault(f"${target.url_env or DEFAULTS}", str(error))
                continue
            deliver = partial(_call_apprise, url) if url.startswith(APPRISE) else partial(_post, url)
            self._start(shown_address(url), partial(deliver, document, self._timeout_s))
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

    def _start(self, shown: str, deliver: Callable[[], str]) -> None:
        def run() -> None:
            if fault := deliver():
                self._faults.setdefault(shown, fault)

        thread = threading.Thread(target=run, daemon=True, name="notify")
        try:
            thread.start()
        except RuntimeError as error:  # no more threads
            self._faults.setdefault(shown, str(error))
        else:
            self._sending.append((thread, shown))

    def _report(self) -> None:
        """Report each failing address once, from the thread that owns the screen."""
        for shown, fault in list(self._faults.items()):
            if shown not in self._reported:
                self._reported.add(shown)
                self._say(f"could not deliver a notification to {shown}: {fault}")


# Each delivers a document, and returns why that failed; empty where it did not.


def _post(url: str, document: Mapping[str, Any], timeout_s: float) -> str:
    from http.client import HTTPException  # slow to import, and most commands notify nobody
    from urllib.error import HTTPError, URLError
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
    except URLError as error:
        return str(error.reason)
    except OSError as error:
        return str(error) or type(error).__name__
    except (HTTPException, ValueError) as error:
        return type(error).__name__  # its text may hold the URL


def _run_hook(environ: Mapping[str, str], document: Mapping[str, Any], timeout_s: float) -> str:
    """Run the user's command with the text as its input, and the document in VASTRUN_NOTIFICATION."""
    # `eval`: the command may hold a token, and the arguments of a process are public. Its output may, too.
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'eval "${HOOK}"'],
            env={**environ, "VASTRUN_NOTIFICATION": json.dumps(document)},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal does not end it
        )
        try:
            process.communicate(f"{document['text']}\n".encode(), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return f"it did not end within {timeout_s:g} s"
    except OSError as error:
        return str(error)
    return f"exit code {process.returncode}" if process.returncode else ""


def _call_apprise(url: str, document: Mapping[str, Any], _timeout_s: float) -> str:
    try:
        apprise = _apprise()
    except ImportError:
        return "the package apprise is not installed"
    title, _, body = document["text"].partition("\n")
    with _silenced():
        # What a service remembers between messages is not written to the disk. The service is called in this
        # thread: at its end, the program would wait for the pool of threads that `Apprise.notify` uses.
        asset = apprise.AppriseAsset(storage_mode="memory")
        service = apprise.Apprise.instantiate(url.removeprefix(APPRISE), asset=asset)
        if service is None:
            return "Apprise does not understand the URL"
        try:
            is_delivered = service.notify(body=body, title=title, notify_type="info", body_format="text")
        except _FAULTS as error:
            return type(error).__name__
    return "" if is_delivered else "Apprise could not deliver it; `apprise -vv -b test URL` shows why"


def _check_apprise(url: str) -> None:
    """Check that Apprise is installed and knows the URL. Raises UsageError, without showing the URL."""
    try:
        apprise, shown = _apprise(), shown_address(url)
    except ImportError as error:
        raise UsageError(
            f"notify: {shown_address(url)} needs Apprise, which is not installed",
            hint=install_command("apprise"),
        ) from error
    with _silenced():
        if apprise.Apprise.instantiate(url.removeprefix(APPRISE)) is None:
            hint = "https://appriseit.com lists the URL of each service"
            raise UsageError(f"notify: Apprise does not understand {shown}", hint=hint)


@cache
def _apprise() -> Any:
    """Return the package, imported only where a URL needs it: it takes most of a second."""
    apprise: Any = import_module("apprise")
    logging.getLogger("apprise").addFilter(lambda _: not getattr(_silence, "is_on", False))
    return apprise


@contextmanager
def _silenced() -> Iterator[None]:
    """Discard what Apprise logs in this thread meanwhile."""
    _silence.is_on = True
    try:
        yield
    finally:
        _silence.is_on = False
