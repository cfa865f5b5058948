"""Key pairs: one for each run, deleted when the run ends."""

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
    """One line in the format of `authorized_keys`."""
    private_path: Path


class KeyRing:
    """A folder with one subfolder a run: its private key and the known hosts of its machines."""

    def __init__(self, folder: Path, secrets: SecretStore | None = None) -> None:
        """`secrets`: store that shares the keys with other computers; None: keys stay here."""
        self._folder, self._secrets = folder, secrets

    def pair(self, run_id: str) -> KeyPair:
        """Return the run's key pair, the same for every launcher. Raises StorageError."""
        path = self._folder_of(run_id) / _PRIVATE
        try:
            if not path.exists():
                write_once(path, self._share(run_id, _generate()))
            return KeyPair(public=_read_public(path, comment=run_id), private_path=path)
        except (OSError, ValueError) as error:
            raise StorageError(f"no SSH key for {run_id}: {error}", hint=f"remove {path.parent}") from error

    def known_hosts(self, run_id: str, instance_id: str) -> Path:
        """Return the known_hosts file of one machine of the run."""
        return self._folder_of(run_id) / f"{_KNOWN_HOSTS}-{_validate_name(instance_id)}"

    def forget(self, run_id: str) -> None:
        """Delete the run's keys."""
        if self._secrets is not None:
            self._secrets.remove(_name(run_id))
        shutil.rmtree(self._folder_of(run_id), ignore_errors=True)

    def _share(self, run_id: str, content: bytes) -> bytes:
        """Return the shared key: that of the first computer that stored one."""
        return content if self._secrets is None else self._secrets.put(_name(run_id), content)

    def _folder_of(self, run_id: str) -> Path:
        return self._folder / _validate_name(run_id)


def _validate_name(name: str) -> str:
    """Return the name if it stays inside its folder. Raises StorageError."""
    if not name or name.startswith(".") or Path(name).name != name:
        raise StorageError(f"not a name for a key: {name!r}")
    return name


def _name(run_id: str) -> str:
    return f"SSH key of {run_id}"


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
