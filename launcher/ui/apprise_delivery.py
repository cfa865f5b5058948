"""Delivery by Apprise, an optional package that knows the services of over a hundred kinds of URLs.

Its log is discarded, and its errors are not repeated: both may hold parts of a URL, which is a secret.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, Literal

from vastrun.launcher.core.addresses import EXPECTED_FOR_APPRISE, Address
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.package_files import install_command

Level = Literal["success", "warning", "failure"]
"""Kinds of messages that Apprise distinguishes, by colour or picture."""

_FAULTS = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)
"""Errors that the code of a service may raise for an unexpected response."""
_silence = threading.local()


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
