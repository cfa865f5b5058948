"""LocalRemote: a shell in the folder of a local box; what this computer needs for one."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO

from vastrun.launcher.core import CommandResult, LocalProgram
from vastrun.launcher.core.errors import BoxError, GoneError, ProviderError, UnreachableError
from vastrun.launcher.gate import caps

TOOLS = ("bash", "setsid", "flock", "tar")
"""Programs that the scripts of a box use."""
_CHECK_INTERVAL_S = 0.5


class LocalRemote:
    """The Remote port for a local box. A box without a folder is gone."""

    def __init__(self, box: Path, env: Mapping[str, str]) -> None:
        self._box = box
        self._env = env
        self._check: Callable[[], None] = lambda: None
        self._watched = ""
        """Path of the file that `has_grown` was asked about."""
        self._read_to: int | None = None
        """End of its last read."""

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        # Files, not pipes: background processes of the command would keep pipes open, and block this call.
        with self._errors(), TemporaryFile() as out, TemporaryFile() as err:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self._box,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                self._wait(process, time.monotonic() + timeout_s)
            except subprocess.TimeoutExpired as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise UnreachableError(f"no answer within {timeout_s:g} s: {command}") from error
            stdout, stderr = _read_output(out), _read_output(err)
        self._check_exists()
        return CommandResult(exit_code=process.returncode, stdout=stdout, stderr=stderr)

    def set_interrupt_check(self, check: Callable[[], None]) -> None:
        self._check = check

    def abort(self) -> None:
        """Do nothing: a command is not waited for without the check."""

    def _wait(self, process: subprocess.Popen[bytes], until: float) -> None:
        while True:
            try:
                process.wait(max(0.0, min(_CHECK_INTERVAL_S, until - time.monotonic())))
                return
            except subprocess.TimeoutExpired:
                self._check()  # what it raises leaves the command to itself, as a connection that is lost
                if time.monotonic() >= until:
                    raise

    def terminal(self, command: str | None = None) -> LocalProgram:
        """Return a shell in the folder, with the box's environment."""
        self._check_exists()
        argv = ("bash", "-i") if command is None else ("bash", "-c", command)
        terminal = {"TERM": os.environ.get("TERM", "dumb")}
        return LocalProgram(argv=argv, cwd=str(self._box), env={**self._env, **terminal})

    def tunnel(self, port: int, local_port: int) -> LocalProgram | None:  # noqa: ARG002 - a port's signature
        """Return None: the box's ports are this computer's ports."""
        self._check_exists()
        return None

    def put(self, local_path: str, path: str) -> None:
        with self._errors(), Path(local_path).open("rb") as source, self._atomic_file(path, 0o600) as target:
            shutil.copyfileobj(source, target)

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        with self._errors(), self._atomic_file(path, mode) as target:
            target.write(content)

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        with self._errors():
            try:
                place = self._box / path
                if not stat.S_ISREG(place.stat().st_mode):  # a read of a pipe could block forever
                    raise BoxError(f"the machine cannot read {path}: it is not a file")
                with place.open("rb") as file:
                    file.seek(offset)
                    content = file.read(limit)
                if path == self._watched:
                    self._read_to = offset + len(content)
                return content
            except FileNotFoundError:
                self._check_exists()
                return b""

    def has_grown(self, path: str) -> bool | None:
        if path != self._watched:
            self._watched, self._read_to = path, None
        try:
            return None if self._read_to is None else (self._box / path).stat().st_size > self._read_to
        except OSError:  # the next request says what it is
            return None

    def close(self) -> None:
        """Do nothing: there is no connection."""

    @contextlib.contextmanager
    def _atomic_file(self, path: str, mode: int) -> Iterator[BinaryIO]:
        """Yield a file that is renamed to its path when it is complete, and deleted otherwise."""
        target = self._box / path
        for folder in reversed(Path(path).parents[:-1]):
            (self._box / folder).mkdir(exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:  # noqa: PTH123
                os.fchmod(file.fileno(), mode)
                yield file
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._check_exists()
            raise box_error(error) from error

    def _check_exists(self) -> None:
        if not self._box.is_dir():
            raise GoneError(f"no such box: {self._box.name}")


def _read_output(printed: IO[bytes]) -> str:
    """Return a command's output. Raises BoxError when it is too large."""
    printed.seek(0)
    content = printed.read(caps.COMMAND_BYTES + 1)
    if len(content) > caps.COMMAND_BYTES:
        raise BoxError(f"a command printed more than {caps.COMMAND_BYTES} bytes")
    return content.decode("utf-8", "replace")


def box_error(error: OSError) -> ProviderError:
    """Return the error for a failed operation on a box's folder."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ProviderError("no space left on this computer's disk", hint="free some space")
    return ProviderError(f"operation failed on this computer: {error}")


def other_system() -> str:
    """Return the name of this computer's system; empty for Linux."""
    system = platform.system()
    return "" if system == "Linux" else {"Darwin": "macOS"}.get(system, system)


def missing_requirement() -> tuple[str, str]:
    """Return the missing requirement and its fix; both empty when all are met."""
    if system := other_system():
        wants = f"needs Linux with {', '.join(TOOLS)}; this computer runs {system}"
        return wants, "--provider docker, or --provider vast"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}", "install bash, tar and util-linux with your package manager"
    return "", ""
