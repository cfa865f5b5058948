"""Vast's API as one instance sees it, for the tests of the lease: its own row, and its end.

In: the folder for its files. Out: `port`; `calls`, a line for each call. Answers 503 while `down` is there.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[1])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer({"instances": {"id": 4711, "actual_status": "running"}})

    def do_DELETE(self) -> None:
        self.answer({"success": True})

    def answer(self, body: dict[str, object]) -> None:
        path, _, query = self.path.partition("?")
        known = "instance-key" in (self.headers.get("Authorization", "")[7:], query.removeprefix("api_key="))
        status = 503 if (FOLDER / "down").exists() else 200 if known else 404
        with (FOLDER / "calls").open("a") as calls:
            calls.write(f"{self.command} {path} {status}\n")
        content = json.dumps(body if status == 200 else {"success": False, "error": "auth_error"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


server = HTTPServer(("127.0.0.1", 0), Handler)
(FOLDER / ".port").write_text(str(server.server_port))
(FOLDER / ".port").rename(FOLDER / "port")
server.serve_forever()
