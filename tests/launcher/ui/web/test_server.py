"""`vastrun ui` over loopback: read-only, for one token, and nothing for anybody else."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.hostile.lie import MARKUP
from tests.jobs import train_job
from tests.launcher.notifications.test_events import RUN
from tests.launcher.terminal import CRASH, Terminal
from tests.launcher.ui.report.made import NAME, NOW, made_batch
from tests.launcher.ui.report.reading import assert_sound
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.launcher.config import dump_job
from vastrun.launcher.core.errors import StorageError, UsageError
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.ui.web.server import LOOPBACK, Server, Site

Answer = tuple[int, dict[str, str], str]
Asked = Callable[..., Answer]


def two_runs(folder: Path) -> Terminal:
    """One that crashed, and one that trains."""
    terminal = Terminal(folder, CRASH)
    terminal.launch()
    terminal.launch("--detach", "--set", "name=still-at-it")
    return terminal


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """For all tests of this file that only read."""
    return two_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def server(terminal: Terminal) -> Iterator[Server]:
    with served(Site(lambda: terminal.ledger, terminal.clock.now).page) as server:
        yield server


@contextmanager
def served(page: Callable[[Sequence[str], str], str | None], **options: Any) -> Iterator[Server]:
    """A server at work, until the end of the block."""
    with Server(page, **options) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def ask(server: Server, path: str = "", method: str = "GET", **headers: str) -> Answer:
    """What is answered to a request below the token."""
    return ask_at(server, f"/{server.token}/{path}", method, **headers)


def ask_at(server: Server, path: str, method: str = "GET", **headers: str) -> Answer:
    connection = HTTPConnection(LOOPBACK, server.port, timeout=LONGEST_S)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_runs_and_batches_are_listed_and_each_has_its_page(server: Server, terminal: Terminal) -> None:
    status, headers, text = ask(server)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    read = assert_sound(text, served=True)
    links = [link["href"] for link in read.of("a")]
    assert links == [f"run/{run.id}" for run in terminal.ledger.runs()]
    for link in links:
        status, _, page = ask(server, link)
        assert status == 200
        assert assert_sound(page, served=True).of("a")[0]["href"] == "../"
    assert 'data-refresh="3"' in ask(server, links[0])[2]
    assert "data-refresh" not in ask(server, links[1])[2], "nothing changes any more"


def test_a_batch_links_to_the_pages_of_its_runs(tmp_path: Path) -> None:
    ledger = made_batch(tmp_path, 5)
    with served(Site(lambda: ledger, lambda: NOW).page) as server:
        assert f'href="batch/{NAME}"' in ask(server)[2]
        status, _, text = ask(server, f"batch/{NAME}")
        assert status == 200
        links = {link["href"] for link in assert_sound(text, served=True).of("a")}
        assert links == {"../", *(f"../run/{run.id}" for run in ledger.runs())}
        assert ask(server, "run/" + ledger.runs()[0].id)[0] == 200


def test_a_held_machine_is_counted_once_in_the_price_now(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger.db", now=lambda: NOW, alive=lambda _: True)
    holder = replace(RUN, id="holder", spec_json=dump_job(train_job()), usd_per_hour=2.0)
    ledger.add(holder)
    for number in range(2):
        ledger.add(replace(holder, id=f"slot-{number}", provider=POOL, usd_per_hour=1.0))
    with served(Site(lambda: ledger, lambda: NOW).page) as server:
        text = ask(server)[2]
    assert "$2.00/h" in text and "$4.00/h" not in text


@pytest.mark.slow
def test_every_run_of_a_large_ledger_is_reached_page_by_page(tmp_path: Path) -> None:
    ledger = made_batch(tmp_path, 450, steps=2)
    with served(Site(lambda: ledger, lambda: NOW).page) as server:
        seen, ways = list[str](), [""]
        for way in ways:
            links = [str(link["href"]) for link in assert_sound(ask(server, way)[2], served=True).of("a")]
            seen += [link.removeprefix("run/") for link in links if link.startswith("run/")]
            others = dict.fromkeys(link for link in links if link.startswith("?"))
            ways += [link for link in others if link not in (*ways, "?page=1")]
    assert ways == ["", "?page=2", "?page=3"]
    assert seen == [run.id for run in ledger.runs()]


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("find=HERON-0001", [1]),
        ("find=+heron+m1+Widths++vast", [1]),
        ("find=no+such+run", []),
        ("find=heron-0002&page=7", [2]),
        ("find=heron-0002&page=0", [2]),
        ("find=heron-0002&page=-1%00", [2]),
        ("find=heron-0002&page=" + "9" * 700, [2]),
        ("page=" + "9" * 9, [0, 1, 2]),
        ("find=%ff%fe%1b[2J", []),
        ("a&" * 50, [0, 1, 2]),
    ],
)
def test_runs_are_found_by_words_of_what_is_shown(query: str, numbers: Sequence[int], tmp_path: Path) -> None:
    ledger = made_batch(tmp_path, 3, seed=1)
    with served(Site(lambda: ledger, lambda: NOW).page) as server:
        status, _, text = ask(server, f"?{query}")
    links = [str(link["href"]) for link in assert_sound(text, served=True).of("a")]
    assert status == 200
    found = sorted(int(link[-4:], 16) for link in links if link.startswith("run/"))
    assert found == numbers


def test_what_is_looked_for_is_no_markup(server: Server) -> None:
    text = ask(server, f"?find={quote(MARKUP)}")[2]
    read = assert_sound(text, served=True)
    assert read.of("input")[0]["value"] and "No matching runs." in " ".join(read.shown)


def test_a_page_shows_what_has_come_meanwhile(tmp_path: Path) -> None:
    terminal = two_runs(tmp_path)
    run = terminal.ledger.runs()[0]
    with served(Site(lambda: terminal.ledger, terminal.clock.now).page) as server:
        before = ask(server, f"run/{run.id}")[2]
        terminal.clock.sleep(10)
        terminal.type("attach", "last")
        after = ask(server, f"run/{run.id}")[2]
    assert "FAILED" in after and "FAILED" not in before


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "DANCE"])
def test_nothing_but_reading_is_allowed(server: Server, method: str) -> None:
    assert ask(server, method=method)[0] == 405


def test_a_head_has_no_body(server: Server) -> None:
    status, headers, text = ask(server, method="HEAD")
    assert (status, text) == (200, "") and int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    "path", ["/", "/{half}/", "/{token}x/", "/{token}", "//", "/é/", "/" + "a" * 5000, "*"]
)
def test_without_the_token_nothing_is_there(server: Server, path: str) -> None:
    path = path.format(token=server.token, half=server.token[:-1])
    with socket.create_connection((LOOPBACK, server.port), timeout=LONGEST_S) as plain:
        plain.sendall(f"GET {path} HTTP/1.0\r\nHost: {LOOPBACK}:{server.port}\r\n\r\n".encode())
        answer = b"".join(iter(lambda: plain.recv(1 << 16), b"")).decode()
    assert answer.startswith("HTTP/1.0 404")
    assert server.token not in answer and "still-at-it" not in answer


@pytest.mark.parametrize(
    "path", ["run/nobody", "run/", "batch/none", "run/../..", "run/%2e%2e/x", "files", "run"]
)
def test_what_is_not_there_is_said_to_be_not_there(server: Server, path: str) -> None:
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": f"{LOOPBACK}.evil.example"},
        {"Host": f"{LOOPBACK}:1"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)
def test_who_asks_in_the_name_of_another_site_is_refused(server: Server, headers: dict[str, str]) -> None:
    """Also with the token: a name that was bound anew to this computer must not read for its owner."""
    status, _, text = ask(server, **headers)
    assert (status, text) == (403, "forbidden\n")


def test_a_browser_of_this_computer_may_ask_by_either_name(server: Server) -> None:
    for host in (f"{LOOPBACK}:{server.port}", f"localhost:{server.port}"):
        own = {"Host": host, "Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
        assert ask(server, **own)[0] == 200


def test_no_answer_lets_another_page_in(server: Server) -> None:
    for status, headers, _ in (
        ask(server),
        ask(server, "nothing"),
        ask_at(server, "/"),
        ask(server, method="POST"),
    ):
        assert status in (200, 404, 405)
        assert headers["Referrer-Policy"] == "no-referrer", "it would tell the token"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert not any(name.startswith("Access-Control") for name in headers)
        assert "Server" not in headers


def test_every_start_has_a_token_of_its_own_and_listens_on_loopback_only() -> None:
    with served(lambda *_: "one") as one, served(lambda *_: "other") as other:
        assert one.token != other.token and len(one.token) >= 43
        assert one.server_address[0] == other.server_address[0] == LOOPBACK
        with pytest.raises(UsageError, match="cannot listen on port"):
            Server(lambda *_: None, one.port)


@pytest.mark.parametrize("kind", [StorageError, ValueError, OSError])
def test_a_ledger_that_cannot_be_read_is_said_in_a_line(kind: type[Exception]) -> None:
    def broken(*_: object) -> str:
        raise kind("cannot read <b>the ledger</b>")

    with served(broken) as server:
        status, _, text = ask(server)
    assert status == 500 and "cannot read &lt;b&gt;the ledger" in text


def test_nothing_that_a_box_says_is_markup(tmp_path: Path) -> None:
    evil = {layout.LOG: f"1.000 rank0 Error: {MARKUP}\n".encode()}
    terminal = Terminal(tmp_path, type(CRASH)(leaves=evil, says=lambda _: MARKUP))
    terminal.launch("--detach")
    terminal.clock.sleep(5)
    terminal.type("pull", "last")
    with served(Site(lambda: terminal.ledger, terminal.clock.now).page) as server:
        text = ask(server, f"run/{terminal.ledger.runs()[0].id}")[2]
    assert "Newest lines" in text
    assert_sound(text, served=True)


def test_the_command_says_where_it_is_and_that_it_ended(tmp_path: Path) -> None:
    words = "['vastrun', 'ui', '--port', '0']"
    program = f"import sys; from vastrun.launcher.cli import main; sys.argv = {words}; main()"
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        assert re.fullmatch(r"/[\w-]{43}/", address.path) and address.hostname == LOOPBACK
        assert address.port is not None
        connection = HTTPConnection(LOOPBACK, address.port, timeout=LONGEST_S)
        connection.request("GET", address.path)
        assert "No runs yet" in connection.getresponse().read().decode()
        connection.close()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONGEST_S)
    assert (process.returncode, out) == (0, "")
    assert err == "Ctrl-C stops the server\nserver stopped\n"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, address.port), timeout=LONGEST_S)
