"""Delivery of notifications by a webhook, ntfy, Slack or Apprise: no run waits for it or fails by it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from http.client import HTTPException
from importlib import import_module
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.request import Request

from vastrun.contract.limited_http import NoRedirects, limited_opener
from vastrun.launcher.core.addresses import EXPECTED_FOR_APPRISE, Address, Service, address_of
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec, NotifyUrl
from vastrun.launcher.notifications.events import (
    AnyNotification,
    BatchNotificationKind,
    NotificationKind,
    NotificationText,
)
from vastrun.launcher.package_files import install_command

Kind = NotificationKind | BatchNotificationKind

DEFAULTS = "VASTRUN_NOTIFY"
"""Environment variable of default URLs, separated by spaces, for jobs without `notify`."""
TIMEOUT_S = 5.0
_GRACE_S = 1.0
"""Seconds beyond the timeout of a request that the program waits at its end."""
_URGENT = (
    NotificationKind.FAILURE,
    NotificationKind.LOST,
    NotificationKind.BUDGET_100,
    NotificationKind.NOT_DESTROYED,
    NotificationKind.OUT_OF_REACH,
    BatchNotificationKind.BUDGET_100,
)
_ENDS = (NotificationKind.END, BatchNotificationKind.END)
Level = Literal["success", "warning", "failure"]
"""Kinds of messages that Apprise distinguishes, by colour or picture."""

_FAULTS = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)
"""Errors that the code of a service may raise for an unexpected response."""
_silence = threading.local()


class UrlNotifier:
    """Posts notifications, each in a separate thread. `say` gets one line about each failing address;
    `text_of` words a notification.

    A run never depends on it: only `check` raises, and only `close` waits.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        say: Callable[[str], None],
        text_of: Callable[[AnyNotification], NotificationText],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._environ, self._say, self._text_of = environ, say, text_of
        self._timeout_s = timeout_s
        self._sending: list[tuple[threading.Thread, Address]] = []
        self._faults: dict[str, str] = {}
        self._reported: set[str] = set()

    def check(self, spec: JobSpec) -> None:
        """Raise UsageError when a receiver in the job has no valid address."""
        for target in self._targets(spec):
            address = self._address(target)
            if address.service is Service.APPRISE:
                check_url(address)

    def has_targets(self, spec: JobSpec) -> bool:
        """Return whether the job has a receiver."""
        return bool(spec.notify) or bool(self._environ.get(DEFAULTS, "").strip())

    def shown_addresses(self, spec: JobSpec) -> Sequence[str]:
        """Return the addresses of the job's notifications, without the secret parts of URLs."""
        shown = []
        for target in self._targets(spec):
            with suppress(UsageError):
                shown.append(self._address(target).shown)
        return shown

    def send(self, notification: AnyNotification, spec: JobSpec) -> None:
        """Send the notification in the background."""
        for target in self._targets(spec):
            try:
                address = self._address(target)
            except UsageError as error:  # the job was checked, but this may be another shell
                self._faults.setdefault(f"${target.url_env or DEFAULTS}", str(error))
                continue
            thread = threading.Thread(
                target=self._deliver, args=(notification, address), daemon=True, name="notify"
            )
            try:
                thread.start()
            except RuntimeError as error:  # no more threads
                self._faults.setdefault(address.shown, str(error))
            else:
                self._sending.append((thread, address))
        self._report()

    def close(self) -> None:
        """Wait until all notifications are delivered, failed or timed out."""
        deadline = time.monotonic() + self._timeout_s + _GRACE_S
        for thread, address in self._sending:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._faults.setdefault(address.shown, "no response")
        self._sending.clear()
        self._report()

    def _targets(self, spec: JobSpec) -> Sequence[NotifyUrl]:
        """Return the targets of the job, else the user's defaults."""
        return spec.notify or [NotifyUrl(url=url) for url in self._environ.get(DEFAULTS, "").split()]

    def _address(self, target: NotifyUrl) -> Address:
        """Return the address of a target. Raises UsageError, without showing the URL."""
        name = target.url_env
        url = self._environ.get(name, "").strip() if name else target.url or ""
        if name and not url:
            raise UsageError(f"notify: the variable {name} is not set", hint=f"export {name}=https://…")
        try:
            return address_of(url)
        except ValueError as error:
            where = name or f"notify: in the job file and at {DEFAULTS}"
            raise UsageError(f"notify: {error}", hint=f"look at {where}") from None

    def _deliver(self, notification: AnyNotification, address: Address) -> None:
        text, kind = self._text_of(notification), notification.kind
        if address.service is Service.APPRISE:
            fault = deliver(address, title=text.title, body=text.body, level=_level(kind))
        else:
            fault = self._post(request_for(text, kind, address))
        if fault:
            self._faults.setdefault(address.shown, fault)

    def _post(self, request: Request) -> str:
        """Return why the request failed; empty where it did not."""
        try:
            with (
                limited_opener(self._timeout_s, NoRedirects) as opener,
                opener.open(request, timeout=self._timeout_s),
            ):
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

    def _report(self) -> None:
        """Report each failing address once, from the thread that owns the screen."""
        for shown, fault in list(self._faults.items()):
            if shown not in self._reported:
                self._reported.add(shown)
                self._say(f"could not deliver a notification to {shown}: {fault}")


def _level(kind: Kind) -> Level:
    if kind in _URGENT:
        return "failure"
    return "success" if kind in _ENDS else "warning"


def request_for(text: NotificationText, kind: Kind, address: Address) -> Request:
    """Return the HTTP request in the form of the service."""
    return _FORMS[address.service](text, kind, address.url)


def _webhook(text: NotificationText, _: Kind, url: str) -> Request:
    return _json(url, text.document)


def _slack(text: NotificationText, _: Kind, url: str) -> Request:
    content = f"*{text.title}*\n{text.body}"
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        content = content.replace(character, entity)
    return _json(url, {"text": content})


def _ntfy(text: NotificationText, kind: Kind, url: str) -> Request:
    headers = {
        "Title": text.title.encode("ascii", "replace").decode(),
        "Priority": "high" if kind in _URGENT else "default",
        "Content-Type": "text/plain; charset=utf-8",
    }
    return Request(url, data=text.body.encode(), headers=headers, method="POST")


def _json(url: str, document: Mapping[str, object]) -> Request:
    headers = {"Content-Type": "application/json"}
    return Request(url, data=json.dumps(document).encode(), headers=headers, method="POST")


_FORMS: Mapping[Service, Callable[[NotificationText, Kind, str], Request]] = {
    Service.WEBHOOK: _webhook,
    Service.NTFY: _ntfy,
    Service.SLACK: _slack,
}


def check_url(address: Address) -> None:
    """Check that Apprise is installed and knows the URL. Raises UsageError, without showing the URL."""
    try:
        apprise = _apprise()
    except ImportError as error:
        raise UsageError(
            f"notify: {address.shown} needs Apprise, which is not installed", hint=install_command("apprise")
        ) from error
    with _silenced():
        is_known = apprise.Apprise.instantiate(address.url) is not None
    if not is_known:
        raise UsageError(
            f"notify: Apprise does not understand {address.shown}; expected {EXPECTED_FOR_APPRISE}",
            hint="https://appriseit.com lists the URL of each service",
        )


def deliver(address: Address, *, title: str, body: str, level: Level) -> str:
    """Send a message and wait for the service. Return why that failed; empty where it did not."""
    try:
        apprise = _apprise()
    except ImportError:
        return "the package apprise is not installed"
    with _silenced():
        # What a service remembers between messages is not written to the disk. The service is called in this
        # thread: at its end, the program would wait for the pool of threads that `Apprise.notify` uses.
        asset = apprise.AppriseAsset(storage_mode="memory")
        service = apprise.Apprise.instantiate(address.url, asset=asset)
        if service is None:
            return "Apprise does not understand the URL"
        try:
            is_delivered = service.notify(body=body, title=title, notify_type=level, body_format="text")
        except _FAULTS as error:
            return type(error).__name__
    return "" if is_delivered else "Apprise could not deliver it; `apprise -vv -b test URL` shows why"


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
