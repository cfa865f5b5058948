"""A W&B of its own on a loopback port: what it was told of each run, as its web pages would show it."""

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.http_servers import QuietHandler, serving

ENTITY = "me"


@dataclass
class TrackedRun:
    """One run."""

    history: list[dict[str, Any]] = field(default_factory=list)
    groups: set[str] = field(default_factory=set)
    """The groups that processes named which began or continued it."""
    exit_codes: list[int] = field(default_factory=list)
    """Each end that it was told of."""

    @property
    def state(self) -> str:
        """What W&B shows some minutes after the last word."""
        if not self.exit_codes:
            return "crashed"
        return "finished" if self.exit_codes[-1] == 0 else "failed"


class WandbServer:
    """Answers what the W&B client asks when a run begins, goes on and ends."""

    def __init__(self) -> None:
        self.runs: dict[str, TrackedRun] = defaultdict(TrackedRun)
        self.url = ""

    @property
    def environment(self) -> dict[str, str]:
        """Of a client that finds it."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": ("0123456789" * 4), "WANDB_MODE": "online"}

    def answer(self, path: str, body: bytes) -> Any:
        if path == "/graphql":
            asked = json.loads(body)
            return {
                "data": _ANSWERS.get(asked["operationName"], lambda *_: {})(self, asked.get("variables", {}))
            }
        if path.endswith("/file_stream"):
            self._stream(self.runs[path.split("/")[-2]], json.loads(body))
        return {}

    def resume_status(self, asked: dict[str, Any]) -> Any:
        run = self.runs.get(asked["name"])
        if run is None:
            return {"model": None}
        known = {
            "id": "QnVja2V0",
            "name": asked["name"],
            "displayName": asked["name"],
            "summaryMetrics": "{}",
            "config": "{}",
            "historyLineCount": len(run.history),
            "historyTail": json.dumps([json.dumps(point) for point in run.history[-1:]]),
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "tags": [],
            "notes": None,
            "wandbConfig": '{"t": 1}',  # W&B's mark of a run that has begun
        }
        return {"model": {**_PROJECT, "bucket": known}}

    def upsert(self, asked: dict[str, Any]) -> Any:
        name = asked.get("name") or asked.get("displayName")
        run = self.runs[str(name)]  # it is there from its start on
        if asked.get("groupName"):  # else the group stays
            run.groups.add(asked["groupName"])
        bucket = {"id": "QnVja2V0", "name": name, "displayName": name, "config": "{}", "project": _PROJECT}
        return {"upsertBucket": {"bucket": bucket | {"historyLineCount": 0}, "inserted": True}}

    def _stream(self, run: TrackedRun, said: dict[str, Any]) -> None:
        lines = said.get("files", {}).get("wandb-history.jsonl")
        if lines:
            run.history[lines["offset"] :] = map(json.loads, lines["content"])
        if said.get("complete"):
            run.exit_codes.append(said["exitcode"])


@contextmanager
def serving_wandb() -> Iterator[WandbServer]:
    """A server, until the end of the block."""
    wandb = WandbServer()
    with serving(type("Handler", (_Handler,), {"wandb": wandb})) as wandb.url:
        yield wandb


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    wandb: WandbServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        answer = json.dumps(self.wandb.answer(self.path, body)).encode()
        self.answer(200, answer, Content_Type="application/json")


_PROJECT = {"id": "UHJvamVjdA==", "name": "vastrun", "entity": {"id": "RW50aXR5", "name": ENTITY}}
_VIEWER = {"id": "VXNlcg==", "entity": ENTITY, "username": ENTITY, "flags": "{}", "teams": {"edges": []}}
_ANSWERS = {
    "Viewer": lambda *_: {"viewer": _VIEWER},
    "RunResumeStatus": WandbServer.resume_status,
    "UpsertBucket": WandbServer.upsert,
    "OrganizationCoreWeaveOrganizationID": lambda *_: {"entity": None},
    "CreateRunFiles": lambda *_: {"createRunFiles": {"runID": "run", "uploadHeaders": [], "files": []}},
}
