"""Key pairs of runs, deleted when a run ends; the pinned host keys of their machines, and those in a log."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.core import errors
from vastrun.launcher.gate import caps
from vastrun.launcher.ports import Clock, SecretStore

if TYPE_CHECKING:
    from paramiko import PKey

Address = tuple[str, int]

_PIN = "# pinned "
_HINT = "the connection may be intercepted: destroy the machine and rent another one"


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """An ed25519 key pair. The private key stays in its file."""

    public: str
    """One line in the format of `authorized_keys`."""
    private_path: Path


class KeyRing:
    """A folder with one subfolder a run: its private key and the known hosts of its machines."""

    def __init__(self, folder: Path, secrets: SecretStore | None = None) -> None:
        """`secrets`: store that shares the keys with other computers; None: keys stay here."""
        self._folder, self._secrets = folder, secrets

    def pair(self, run_id: str) -> KeyPair:
        """Return the run's key pair, the same for every launcher. Raises StorageError."""
        path = self._folder_of(run_id) / "id_ed25519"
        try:
            if not path.exists():
                new, store = _generate(), self._secrets
                # Shared is the key of the first computer that stored one.
                write_once(path, new if store is None else store.put(f"SSH key of {run_id}", new))
            return KeyPair(public=_read_public(path, comment=run_id), private_path=path)
        except (OSError, ValueError) as error:
            raise errors.StorageError(
                f"no SSH key for {run_id}: {error}", hint=f"remove {path.parent}"
            ) from error

    def known_hosts(self, run_id: str, instance_id: str) -> Path:
        """Return the known_hosts file of one machine of the run."""
        return self._folder_of(run_id) / f"known_hosts-{_validate_name(instance_id)}"

    def forget(self, run_id: str) -> None:
        """Delete the run's keys."""
        if self._secrets is not None:
            self._secrets.remove(f"SSH key of {run_id}")
        shutil.rmtree(self._folder_of(run_id), ignore_errors=True)

    def _folder_of(self, run_id: str) -> Path:
        return self._folder / _validate_name(run_id)


def _validate_name(name: str) -> str:
    """Return the name if it stays inside its folder. Raises StorageError."""
    if not name or name.startswith(".") or Path(name).name != name:
        raise errors.StorageError(f"not a name for a key: {name!r}")
    return name


def _generate() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def write_once(path: Path, content: bytes) -> None:
    """Create a secret file atomically. The first of several writers wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        # A link, not a rename: a rename would replace a key that another launcher uses already.
        with suppress(FileExistsError):
            path.hardlink_to(part)
    finally:
        part.unlink(missing_ok=True)


def _read_public(path: Path, *, comment: str) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

    public = load_ssh_private_key(path.read_bytes(), password=None).public_key()
    return f"{public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} {comment}"


class KnownHosts:
    """A file in OpenSSH's known_hosts format, shared by all launchers that drive the run."""

    def __init__(self, path: Path, *, read_fingerprints: Callable[[], Collection[str]] = tuple) -> None:
        """`read_fingerprints`: returns the fingerprints in the machine's log, in the form of `ssh-keygen -l`.

        It returns none when the log names none, raises UnreachableError when the log may name one soon, and
        ProviderError when the log cannot be read. It is called only for keys that are not known yet.
        """
        self.path = path
        """The file, for OpenSSH's client."""
        self._read_fingerprints = read_fingerprints
        self.identity = ""
        """Method by which the last machine was identified, for display."""

    def knows(self, address: Address) -> bool:
        """Return whether this address answered before."""
        return _host_name(address) in self._keys()

    def check(self, address: Address, key: PKey) -> None:
        """Check that the key is the machine's. Raises HostKeyError, UnreachableError, StorageError."""
        name, key_line = _host_name(address), f"{key.get_name()} {key.get_base64()}"
        known, pins, why = self._keys().get(name, []), self._pins(), ""
        # The log is read only when it could name a new key: reading it takes seconds.
        if key.fingerprint not in pins and (pins or known[:1] != [key_line]):
            why = self._pin_from_log()
            pins = self._pins()
        if pins and key.fingerprint not in pins:
            text = f"shows the host key {key.fingerprint}, which the machine's log does not name"
            raise errors.HostKeyError(text, hint=_HINT)
        if not pins and known[:1] not in ([], [key_line]):
            text = f"shows a host key that has changed; it is now {key.fingerprint}"
            raise errors.HostKeyError(text, hint=_HINT)
        if key_line not in known:
            self._append(f"{name} {key_line}\n")
        by = f"is trusted on first use: {why}" if why else "is the one that was trusted on first use"
        by = "is the one in its log" if pins else by
        self.identity = f"the machine's SSH host key {by}"

    def _pin_from_log(self) -> str:
        """Pin the fingerprints in the machine's log; return the reason if there is none."""
        try:
            self._append("".join(f"{_PIN}{named}\n" for named in self._read_fingerprints()))
        except errors.UnreachableError:
            raise
        except errors.ProviderError as error:
            return str(error)
        return "its log does not name one"

    def _pins(self) -> set[str]:
        """Return the fingerprints that were pinned."""
        return {line.removeprefix(_PIN) for line in self._lines() if line.startswith(_PIN)}

    def _keys(self) -> dict[str, list[str]]:
        """Return host keys by address: that of the first connection, then those that the log named later."""
        found: dict[str, list[str]] = {}
        for line in self._lines():
            if " " in line and not line.startswith("#"):
                address, key_line = line.split(" ", 1)
                found.setdefault(address, []).append(key_line)
        return found

    def _lines(self) -> list[str]:
        try:
            return self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise errors.StorageError(f"cannot read {self.path}: {error.strerror}") from error

    def _append(self, lines: str) -> None:
        if not lines:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(lines)
        except OSError as error:
            raise errors.StorageError(f"cannot write {self.path}: {error.strerror}") from error


def _host_name(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}"


_KEY_LINE = re.compile(r"\b\d+ (SHA256:[A-Za-z0-9+/]{43}) .*\([A-Z0-9-]+\)\s*$")
"""A fingerprint as printed by `ssh-keygen -l`."""


class HostKeyLog:
    """Reader and cache of the host key fingerprints in machines' logs."""

    def __init__(self, read: Callable[[str], str], clock: Clock) -> None:
        """`read` returns the log of the machine with that id, or at least its lines with fingerprints."""
        self._log = read
        self._clock = clock
        self._started: dict[str, float] = {}
        self._named: dict[str, tuple[float, Collection[str]]] = {}

    def fingerprints(self, instance_id: str) -> Collection[str]:
        """Return the fingerprints of one machine; empty when its log names none.

        Raises UnreachableError while the log may still name them, ProviderError when it cannot be read.
        """
        now = self._clock.now()
        read_at, named = self._named.get(instance_id, (0.0, ()))
        # A read of the log takes seconds on some providers, and every new connection needs it.
        if named and now - read_at < 10.0:
            return named
        # The log is untrusted: lines longer than any fingerprint are skipped, since the pattern is quadratic.
        lines = [
            line for line in self._read(instance_id).split("\n") if len(line) <= caps.KEY_LINE_CHARACTERS
        ]
        named = {found[1] for found in map(_KEY_LINE.search, lines) if found}
        self._named[instance_id] = now, named
        if not named and now - self._started.setdefault(instance_id, now) < 20.0:
            raise errors.UnreachableError("its log does not name its SSH host key yet")
        return named

    def _read(self, instance_id: str) -> str:
        try:
            return self._log(instance_id)
        except errors.VastrunError as error:
            raise errors.ProviderError(f"its log cannot be read ({error})") from error
