"""Secrets that a command prints, such as `op read …`: run within limits, remembered in memory alone."""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from vastrun.launcher.config.command import program_of, script_of
from vastrun.launcher.core.errors import JobValueError
from vastrun.launcher.core.job import Secret
from vastrun.launcher.gate.text import printable

TIMEOUT_S = 60.0
"""Seconds until a command is killed: time enough to type a passphrase or to touch a key."""
MAX_BYTES = 32 << 10
"""Bytes that a command may print."""
MAX_AGE_S = 900.0
"""Seconds for which a value is used again, so that one launch asks a password manager once."""
MAX_FALLBACK_AGE_S = 86_400.0
"""Seconds for which the former value is used where the command fails now: the vault may be locked again."""
_SHOWN = 200
"""Characters of stderr in a message."""

_Key = tuple[str, str]
"""A command and the folder that it is run in."""


class CommandSecrets:
    """Runs the commands of secrets, once for many runs, and keeps their values in this process's memory.

    A command gets the user's environment and no input. It may ask the user at the terminal (`/dev/tty`); a
    launcher in the background has none. Many threads may ask at once: one of them runs the command.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        timeout_s: float = TIMEOUT_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment, self._timeout_s, self._now = environment, timeout_s, now
        self._lock = threading.Lock()
        self._known: dict[_Key, tuple[str, float]] = {}
        """Values, each with the time at which it was read."""
        self._failed: dict[_Key, tuple[float, JobValueError]] = {}
        self._trusted: set[str] = set()

    def trust(self, command: str) -> None:
        """Note that this user's own job file has the command."""
        self._trusted.add(command)

    def is_trusted(self, command: str) -> bool:
        """Tell whether a job file that was read here has the command."""
        return command in self._trusted

    def known(self, secret: Secret, max_age_s: float = MAX_FALLBACK_AGE_S) -> str | None:
        """Return the value without running anything; None: it was not read, or too long ago."""
        value, read_at = self._known.get(_key(secret), ("", -math.inf))
        return value if self._now() - read_at <= max_age_s else None

    def read(self, secret: Secret) -> str:
        """Return what the secret's command prints. Raises JobValueError, which never holds the value."""
        key, asked_at = _key(secret), self._now()
        with self._lock:
            if (known := self.known(secret, MAX_AGE_S)) is not None:
                return known
            failed_at, failure = self._failed.get(key, (asked_at - 1, None))
            if failure is not None and failed_at >= asked_at:  # while this thread waited for another one
                raise JobValueError(str(failure), hint=failure.hint)
            try:
                value = self._run(secret)
            except JobValueError as error:
                if (former := self.known(secret)) is not None:
                    return former
                self._failed[key] = self._now(), error
                raise
            self._known[key] = value, self._now()
            return value

    def hand_over(self) -> bytes:
        """Return all values, for the memory of a driver that this process starts; empty: there are none."""
        entries = [
            {"command": command, "folder": folder, "value": value, "age_s": self._now() - read_at}
            for (command, folder), (value, read_at) in list(self._known.items())
        ]
        return json.dumps(entries).encode() if entries else b""

    def take_over(self, content: bytes) -> None:
        """Take the values that `hand_over` returned in the process that started this one."""
        try:
            entries = json.loads(content or b"[]")
        except ValueError:  # a pipe may have had no room for all of it
            return
        for entry in entries:
            key = (entry["command"], entry["folder"])
            self._known[key] = entry["value"], self._now() - entry["age_s"]
            self.trust(entry["command"])

    def _run(self, secret: Secret) -> str:
        command = secret.command or ""
        try:
            program = program_of(command)
            argv = list(program) if script_of(program) is None else ["sh", "-c", command]
            done = _output_of(argv, self._environment, secret.folder, self._timeout_s)
        except subprocess.TimeoutExpired:
            raise _failure(secret, f"did not end within {self._timeout_s:g} s") from None
        except OverflowError:
            raise _failure(secret, f"printed more than {MAX_BYTES >> 10} KiB") from None
        except (OSError, ValueError) as error:
            raise _failure(secret, f"cannot be run: {_reason(error)}") from None
        text = done.stdout.decode(errors="replace").rstrip("\r\n")
        if done.returncode:
            # Where it printed something all the same, stderr may hold it, too.
            printed = "" if text.strip() else printable(done.stderr.decode(errors="replace")).strip()
            reason = printed.rpartition("\n")[2].strip()[:_SHOWN]
            end = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
            raise _failure(secret, f"failed with {end}{reason and f': {reason}'}")
        if not text.strip():
            raise _failure(secret, "printed nothing")
        if "\0" in text or "\ufffd" in text:
            raise _failure(secret, "did not print text in UTF-8")
        if (count := len(text.splitlines())) > 1:
            raise _failure(secret, f"printed {count} lines", f"to take the first: {command} | head -n 1")
        return text


def _key(secret: Secret) -> _Key:
    return secret.command or "", secret.folder or ""


def _reason(error: OSError | ValueError) -> str:
    """Say why a command did not start, with the name that was not found: its program or its folder."""
    if isinstance(error, FileNotFoundError):
        return f"{error.filename} was not found"
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _failure(secret: Secret, what: str, advice: str = "") -> JobValueError:
    """Say what a command did instead of what was expected of it."""
    hint = f"run it by itself in this terminal: {secret.command}"
    return JobValueError(
        f"secrets: the command of {secret.name} {what}; expected one line on stdout, and exit code 0",
        hint=f"{hint}   ({advice})" if advice else hint,
    )


def _output_of(
    argv: list[str], environment: Mapping[str, str], folder: str | None, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program without input. Raises OSError, TimeoutExpired; OverflowError when it prints too much."""
    until = time.monotonic() + timeout_s
    # At a terminal it stays in the group of this command: a program of another group cannot ask there.
    own_group = not _has_terminal()
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=None if folder is None else Path(folder).expanduser(),
        process_group=0 if own_group else None,
    )
    try:
        stdout, stderr = _read(process, until)
        process.wait(max(0.0, until - time.monotonic()))
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL) if own_group else process.kill()
            process.wait()
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def _read(process: subprocess.Popen[bytes], until: float) -> tuple[bytes, bytes]:
    """Read both streams until the process has ended; of stderr the last part is kept."""
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.fileno(), process.stderr.fileno()
    texts = {out: b"", err: b""}
    with selectors.DefaultSelector() as selector:
        for stream in texts:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            has_ended = process.poll() is not None
            ready = selector.select(0 if has_ended else min(left_s, 0.1))
            if has_ended and not ready:
                break  # a daemon that it started, such as gpg-agent, may keep the pipes open
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                texts[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
            texts[err] = texts[err][-4096:]
            if len(texts[out]) > MAX_BYTES:
                raise OverflowError
    return texts[out], texts[err]


def _has_terminal() -> bool:
    """Return whether this process can ask at a terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
