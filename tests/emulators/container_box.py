"""A box as a container: an image's files, a network of its own, a real sshd, onstart at each start."""

import contextlib
import io
import tarfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError, NotFound
from docker.models.containers import Container

from tests.emulators.box import Graphics, Program
from tests.emulators.nvidia_smi import nvidia_smi

_INIT = Path(__file__).with_name("container_init.sh")
_GRACE_S = 0.15
"""A box that asks for its own end still gets the answer."""
_NEVER_RAN = 125
"""The exit code of `docker run` where the container did not start."""


class ContainerBox:
    """A thread of its own talks to Docker, in the order of the verbs."""

    def __init__(
        self, docker: DockerClient, *, image: str, name: str, labels: Mapping[str, str], graphics: Graphics
    ) -> None:
        self._docker = docker
        self._image = image
        self._name = name
        self._labels = dict(labels)
        self._graphics = graphics
        self._calls = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._container: Container | None = None
        self._notes: list[str] = []
        self._starts = 0
        self._exit_code: int | None = None
        self._over = True
        self._stdin: object = None
        self._keys_flaw = ""

    def start(self, program: Program, keys: Sequence[str]) -> None:
        self._starts += 1
        self._exit_code, self._over = None, False
        self._keys_flaw = program.keys_flaw
        self._calls.submit(self._start, program, tuple(keys), self._starts)

    def authorize(self, keys: Sequence[str]) -> None:
        self._calls.submit(self._put, _ssh_files(keys), self._keys_flaw)

    def port(self, name: str) -> int | None:
        if self._container is None or self._over:
            return None
        with contextlib.suppress(NotFound):
            self._container.reload()
            bound = self._container.ports.get(name) or []
            return int(bound[0]["HostPort"]) if bound else None
        return None

    @property
    def exit_code(self) -> int | None:
        return self._exit_code

    @property
    def over(self) -> bool:
        return self._over

    def end(self) -> None:
        self._calls.submit(self._end)

    def wipe(self) -> None:
        self._calls.submit(self._remove).result()

    def log(self) -> str:
        printed = self._container.logs() if self._container else b""
        return printed.decode(errors="replace") + "".join(self._notes)

    def note(self, text: str) -> None:
        self._notes.append(text)

    def _start(self, program: Program, keys: Sequence[str], number: int) -> None:
        try:
            if self._container is None:
                # Its standard input ends with this process, and it ends with its standard input.
                self._container = self._docker.containers.create(
                    self._image,
                    entrypoint=["/bin/sh", "/.launch"],
                    command=[],
                    name=self._name,
                    labels=self._labels,
                    environment={"DATA_DIRECTORY": "/workspace", **program.env},
                    ports=dict.fromkeys(("22/tcp", *program.ports), ("127.0.0.1", None)),
                    init=True,
                    stdin_open=True,
                    shm_size="1g",
                )
            self._put(self._files(program))
            self._put(_ssh_files(keys), self._keys_flaw)
            self._stdin = self._container.attach_socket(params={"stdin": 1, "stream": 1})
            self._container.start()
        except APIError as error:
            self.note(f"{error}\n")
            self._over, self._exit_code = True, _NEVER_RAN
            return
        threading.Thread(target=self._watch, args=(self._container, number), daemon=True).start()

    def _watch(self, container: Container, number: int) -> None:
        try:
            code = container.wait(timeout=None)["StatusCode"]
        except NotFound:
            code = 137
        if number == self._starts:
            self._over, self._exit_code = True, code

    def _end(self) -> None:
        time.sleep(_GRACE_S)
        with contextlib.suppress(APIError):
            if self._container:
                self._container.kill()

    def _remove(self) -> None:
        if self._container:
            with contextlib.suppress(NotFound):
                self._container.remove(force=True, v=True)
        self._container = self._stdin = None
        self._notes.clear()
        self._over = True

    def _files(self, program: Program) -> Mapping[str, tuple[str, int]]:
        onstart = f"#!/bin/sh\n{program.onstart}" if program.by_sh and program.onstart else program.onstart
        lines = "".join(f'{name}="{value}"\n' for name, value in program.session_env.items())
        return {
            ".launch": (_INIT.read_text(), 0o755),
            "usr/local/bin/nvidia-smi": (nvidia_smi(self._graphics), 0o755),
            "root/onstart.sh": (onstart, 0o700),
            **({"etc/environment": (lines, 0o644)} if lines else {}),
        }

    def _put(self, files: Mapping[str, tuple[str, int]], keys_flaw: str = "") -> None:
        if self._container:
            self._container.put_archive("/", _archive(files, keys_flaw))


def _ssh_files(keys: Sequence[str]) -> Mapping[str, tuple[str, int]]:
    return {"root/.ssh/authorized_keys": ("".join(f"{key.strip()}\n" for key in keys), 0o600)}


def _archive(files: Mapping[str, tuple[str, int]], keys_flaw: str) -> bytes:
    """Owned by root, but for a flaw; a folder of one's own where there is none."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, (text, mode) in files.items():
            content = text.encode()
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode, entry.mtime = len(content), mode, int(time.time())
            if keys_flaw == "modes":
                entry.mode = 0o666
            elif keys_flaw == "owner":
                entry.uid = entry.gid = 12345
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
