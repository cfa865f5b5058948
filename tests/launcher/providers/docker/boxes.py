"""A Docker daemon whose containers are processes, for where there is no Docker.

It runs the onstart text and an SSH server, as the provider's own first program does. That program, images and
limits are tried with a real daemon only.
"""

import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.emulators import ssh_servers
from tests.emulators.box import Graphics, Program
from tests.emulators.process_box import ProcessBox
from tests.launcher.providers.docker.daemon import INFO, FakeDaemon, row, shown

_NO_GPUS = Graphics(names=(), memory_mb=0, driver="")
_NONE: tuple[int, Any] = (404, {"message": "No such container"})
_PORT = "22/tcp"


@dataclass
class _Container:
    """As it was asked for, with the box that it is."""

    name: str
    config: Mapping[str, Any]
    box: ProcessBox
    created_at: int = field(default_factory=lambda: int(time.time()))
    started: bool = False

    @property
    def state(self) -> str:
        if not self.started:
            return "created"
        return "running" if self.box.exit_code is None else "exited"

    def start(self) -> None:
        self.started = True
        env = dict(pair.split("=", 1) for pair in self.config["Env"])
        del env["HOME"]  # a process has the box's own
        program = Program(env=env, onstart=self.config["Cmd"][-1])
        self.box.start(program, [env["SSH_PUBLIC_KEY"]])

    def row(self) -> Mapping[str, Any]:
        """As a list has it."""
        own = {"Id": self.name, "Image": self.config["Image"], "Created": self.created_at}
        return {**row(self.name, self.state, **self.config["Labels"]), **own}

    def from_inspect(self) -> Mapping[str, Any]:
        port = self.box.port(_PORT) if self.state == "running" else None
        published = {_PORT: [{"HostIp": "127.0.0.1", "HostPort": str(port)}]} if port else {}
        told = shown(self.name, self.config["Labels"], Status=self.state, ExitCode=self.box.exit_code or 0)
        return {**told, "Id": self.name, "NetworkSettings": {"Ports": published}}


class BoxDaemon(FakeDaemon):
    """Use it in a `with`: nothing is left of its containers."""

    login = ssh_servers.user()
    """Who logs in to them."""

    def __init__(self) -> None:
        # The path of a socket is short, other than that of a test's folder.
        super().__init__(Path(tempfile.mkdtemp(prefix="docker-")))
        self._containers: dict[str, _Container] = {}
        self._lock = threading.Lock()
        self._verbs: Mapping[str, Callable[..., tuple[int, Any]]] = {
            r"GET /info": lambda **_: (200, INFO),
            r"GET /images/.+/json": lambda *_, **__: (200, {"Id": "sha256:0"}),
            r"GET /containers/json": self._list,
            r"POST /containers/create": self._create,
            r"POST /containers/([^/]+)/start": self._start,
            r"GET /containers/([^/]+)/json": self._inspect,
            r"GET /containers/([^/]+)/logs": self._logs,
            r"DELETE /containers/([^/]+)": self._remove,
        }

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        for container in self._containers.values():
            container.box.wipe()
        assert self.folder
        shutil.rmtree(self.folder)

    def answer(self, request: str, body: Any, query: Mapping[str, str]) -> tuple[int, Any]:
        with self._lock:
            for pattern, verb in self._verbs.items():
                found = re.fullmatch(pattern, request)
                if found:
                    return verb(*found.groups(), body=body, query=query)
        return super().answer(request, body, query)

    def _create(self, body: Any, query: Mapping[str, str]) -> tuple[int, Any]:
        assert self.folder
        name = query["name"]
        box = ProcessBox(root=self.folder / name, graphics=_NO_GPUS)
        self._containers[name] = _Container(name, body, box)
        return 201, {"Id": name, "Warnings": []}

    def _list(self, body: Any, query: Mapping[str, str]) -> tuple[int, Any]:
        wanted = dict(label.split("=", 1) for label in json.loads(query["filters"])["label"])
        rows = [container.row() for container in self._containers.values()]
        return 200, [row for row in rows if wanted.items() <= row["Labels"].items()]

    def _start(self, name: str, **_: object) -> tuple[int, Any]:
        if name not in self._containers:
            return _NONE
        self._containers[name].start()
        return 204, None

    def _inspect(self, name: str, **_: object) -> tuple[int, Any]:
        found = self._containers.get(name)
        return (200, found.from_inspect()) if found else _NONE

    def _logs(self, name: str, **_: object) -> tuple[int, Any]:
        found = self._containers.get(name)
        return (200, found.box.log().encode()) if found else _NONE

    def _remove(self, name: str, **_: object) -> tuple[int, Any]:
        found = self._containers.pop(name, None)
        if found is None:
            return _NONE
        found.box.wipe()
        return 204, None
