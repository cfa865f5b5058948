"""A Docker daemon that answers what a test says, or hangs up, on a Unix socket or a port."""

import json
import re
import socketserver
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.http_servers import QuietHandler

INFO = {
    "Name": "workstation",
    "ServerVersion": "28.0.1",
    "NCPU": 16,
    "MemTotal": 64_000_000_000,
    "DockerRootDir": "/nowhere/at/all",
    "Runtimes": {"runc": {}, "nvidia": {}},
}
HANG_UP = 0
"""In the place of a status: the connection is closed without an answer."""


@dataclass(frozen=True)
class Stream:
    """What is told message by message while something is done."""

    messages: tuple[Mapping[str, Any], ...]


@dataclass
class FakeDaemon:
    """Use it in a `with`. `answers`: status and body by method and path, the first that fits."""

    folder: Path | None
    """Where its socket is; None: it listens on a port."""
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """Method and path, and what was sent, of every request."""

    def __enter__(self) -> Self:
        if self.folder is None:
            self._server: Any = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler)
        else:
            address = str(self.folder / "docker.sock")
            self._server = socketserver.ThreadingUnixStreamServer(address, _Handler)
        self._server.daemon_threads = True
        self._server.daemon_of_tests = self
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """For DOCKER_HOST."""
        if self.folder is None:
            return f"tcp://127.0.0.1:{self._server.server_address[1]}"
        return f"unix://{self._server.server_address}"

    def sent(self, request: str) -> Any:
        """What came with the only request of that kind."""
        (body,) = [body for asked, body in self.asked if re.fullmatch(request, asked)]
        return body

    def answer(self, request: str, body: Any, query: Mapping[str, str]) -> tuple[int, Any]:
        self.asked.append((request, body))
        fitting = (answer for pattern, answer in self.answers.items() if re.fullmatch(pattern, request))
        return next(fitting, (404, {"message": f"nothing to say to {request}"}))


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "a client"

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        target = urlsplit(self.path)
        path, query = re.sub(r"^/v[\d.]+", "", target.path), dict(parse_qsl(target.query))
        daemon: FakeDaemon = self.server.daemon_of_tests  # type: ignore[attr-defined]
        status, said = (
            _VERSION if path == "/version" else daemon.answer(f"{self.command} {path}", body, query)
        )
        if status == HANG_UP:
            self.close_connection = True
            return
        if isinstance(said, Stream):
            self._tell(status, said)
            return
        content = said if isinstance(said, bytes) else b"" if said is None else json.dumps(said).encode()
        self.answer(status, content, Content_Type="application/json")

    do_POST = do_DELETE = do_GET

    def _tell(self, status: int, stream: Stream) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for message in stream.messages:
            line = json.dumps(message).encode() + b"\r\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")


_VERSION = (200, {"ApiVersion": "1.47", "Version": "28.0.1"})


def row(name: str, state: str = "running", **labels: str) -> Mapping[str, Any]:
    """A container as a list has it."""
    return {
        "Id": "0" * 64,
        "Names": [f"/{name}"],
        "Image": "lab/own:1",
        "ImageID": "sha256:0",
        "State": state,
        "Created": 1_700_000_000,
        "Labels": labels,
    }


def shown(name: str, labels: Mapping[str, str], **state: Any) -> Mapping[str, Any]:
    """A container as it is told of a single one."""
    return {
        "Name": f"/{name}",
        "Config": {"Labels": labels, "Tty": True},
        "State": {"Status": "running", "ExitCode": 0, "OOMKilled": False, **state},
        "NetworkSettings": {"Ports": {}},
    }
