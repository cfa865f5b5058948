"""A page in Chromium without a screen, driven by the DevTools protocol over a pipe."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import LONGEST_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
"""What becomes of requests when this computer gets an interface, as with each container of other tests."""


def program() -> str | None:
    """Where it is; None: there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab. `open` a file, `evaluate` what its script would, look at what it logged and asked for."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers = orders, answers
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.requests: list[str] = []
        """The addresses that were asked for."""
        self.complaints: list[str] = []
        """Errors and warnings of its console, and exceptions."""
        self._loaded = False
        target = self.order("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.order("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.order(f"{domain}.enable")
        self.order("Performance.enable", timeDomain="threadTicks")

    def open(self, path: Path) -> float:
        """Load the file, as `visit`."""
        return self.visit(path.resolve().as_uri())

    def visit(self, address: str) -> float:
        """Load the page and draw it all; return the seconds of a processor that it took."""
        self.requests.clear()
        self.complaints.clear()
        self._loaded = False
        answer = self.order("Page.navigate", url=address)
        self._wait_until_loaded()
        if answer.get("errorText") == NETWORK_CHANGED:
            return self.visit(address)
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return float(next(one["value"] for one in self._figures() if one["name"] == "ThreadTime"))

    def follow(self, script: str) -> None:
        """Do what leads to another page; return when that is loaded: until then there may be none to ask."""
        self._loaded = False
        self.evaluate(script)
        self._wait_until_loaded()

    def _wait_until_loaded(self) -> None:
        deadline = time.monotonic() + LONGEST_S
        while not self._loaded:
            self._take(deadline)

    def _figures(self) -> Any:
        """Of this page only: they begin anew with each."""
        return self.order("Performance.getMetrics")["metrics"]

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Make the window so large, and the user's taste so."""
        self.order(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.order("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, script: str) -> Any:
        """The value of the script's expression. Raises AssertionError where it throws."""
        point_text = self.order("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in point_text, point_text["exceptionDetails"]
        return point_text["result"].get("value")

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write what is seen, or the whole page, as a PNG."""
        seen = self.order("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(seen["data"]))

    def order(self, method: str, **params: Any) -> Any:
        """What the browser answers."""
        self._number += 1
        order: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        deadline = time.monotonic() + LONGEST_S
        while True:
            point_text = self._take(deadline)
            if point_text.get("id") == self._number:
                assert "error" not in point_text, point_text["error"]
                return point_text["result"]

    def _take(self, deadline: float) -> Any:
        """The next message; events are noted."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser says nothing"
            chunk = os.read(self._answers, 1 << 20)
            assert chunk, "the browser has ended"
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        point_text = json.loads(message)
        self._note(point_text.get("method", ""), point_text.get("params", {}))
        return point_text

    def _note(self, method: str, params: Any) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and NETWORK_CHANGED not in params["entry"]["text"]:
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(json.dumps(params["args"]))


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A browser of our own, with its profile in that folder, until the end of the block."""
    found = program()
    assert found is not None
    orders_out, orders = os.pipe()
    answers, answers_in = os.pipe()

    def as_three_and_four() -> None:
        """The numbers by which the browser knows the pipe."""
        spare = os.dup(answers_in)
        os.dup2(orders_out, 3)
        os.dup2(spare, 4)

    options = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"),
        *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
        f"--user-data-dir={folder}",
    )
    process = subprocess.Popen(
        [found, *options],
        pass_fds=(3, 4),
        preexec_fn=as_three_and_four,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)},
    )
    os.close(orders_out)
    os.close(answers_in)
    try:
        yield Page(orders, answers)
    finally:
        process.terminate()
        process.wait(LONGEST_S)
        os.close(orders)
        os.close(answers)
