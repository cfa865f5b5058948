"""Key pairs made for one run alone: kept for as long as the run is open, then deleted."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.ports import SecretStore

_PRIVATE = "id_ed25519"
_KNOWN_HOSTS = "known_hosts"


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """An ed25519 key pair. The private key stays in its file."""

    public: str
    """One line, as `authorized_keys` wants it."""
    private_path: Path


class KeyRing:
    """A folder with one sub-folder a run: its private key, and the host keys that its machines showed."""

    def __init__(self, folder: Path, secrets: SecretStore | None = None) -> None:
        """`secrets`: where other computers find the keys, too."""
        self._folder, self._secrets = folder, secrets

    def pair(self, run_id: str) -> KeyPair:
        """Return the run's key pair; the same one for every launcher that asks. Raises StorageError."""
        path = self._of(run_id) / _PRIVATE
        try:
            if not path.exists():
                write_once(path, self._shared(run_id, _generated()))
            return KeyPair(public=_public(path, comment=run_id), private_path=path)
        except (OSError, ValueError) as error:
            raise StorageError(f"no SSH key for {run_id}: {error}", hint=f"remove {path.parent}") from error

    def known_hosts(self, run_id: str, instance_id: str) -> Path:
        """Return the file where the host keys of one machine of the run are noted."""
        return self._of(run_id) / f"{_KNOWN_HOSTS}-{_checked(instance_id)}"

    def forget(self, run_id: str) -> None:
        """Remove the run's keys."""
        if self._secrets is not None:
            self._secrets.remove(_name(run_id))
        shutil.rmtree(self._of(run_id), ignore_errors=True)

    def _shared(self, run_id: str, content: bytes) -> bytes:
        """The key of the computer that came first."""
        return content if self._secrets is None else self._secrets.put(_name(run_id), content)

    def _of(self, run_id: str) -> Path:
        return self._folder / _checked(run_id)


def _checked(name: str) -> str:
    """A name that stays in its folder."""
    if not name or name.startswith(".") or Path(name).name != name:
        raise StorageError(f"not a name for a key: {name!r}")
    return name


def _name(run_id: str) -> str:
    return f"SSH key of {run_id}"


def _generated() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def write_once(path: Path, content: bytes) -> None:
    """Make a secret file, whole from the moment it has its name. Of several writers the first one wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        # A link, not a rename: a rename would replace the one that another launcher uses already.
        with suppress(FileExistsError):
            path.hardlink_to(part)
    finally:
        part.unlink(missing_ok=True)


def _public(path: Path, *, comment: str) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

    public = load_ssh_private_key(path.read_bytes(), password=None).public_key()
    return f"{public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()} {comment}"
