"""The file that lists the workstations: YAML becomes typed values, or all its faults at once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vastrun.launcher.core.errors import ConfigFileError, UsageError

FILE_NAME = "ssh-machines.yaml"
VARIABLE = "VASTRUN_SSH_MACHINES"
"""Environment variable with the path of another file."""
_MAX_MACHINES = 64
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}|[0-9a-fA-F:]{2,39}", re.ASCII)
_USER = re.compile(r"[A-Za-z_][\w.-]{0,31}", re.ASCII)
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}", re.ASCII)
_FOLDER = re.compile(r"/?[\w.+-]+(?:/[\w.+-]+)*", re.ASCII)
_PYTHON = re.compile(r"[\w./+-]{1,500}", re.ASCII)
_GPU = re.compile(r"[\w .+-]{1,60}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Workstation:
    """One machine of the file. Every key of the file is a field here."""

    name: str
    host: str
    user: str
    key: str = "~/.ssh/id_ed25519"
    """An ed25519 key without a passphrase, on this computer."""
    port: int = 22
    host_key: str | None = None
    """Fingerprint of the host key, `SHA256:…`; None: the one that it shows first is trusted from then on."""
    gpus: int = 0
    gpu_name: str = ""
    """As vastrun's job files have it: `RTX 4090`."""
    gpu_memory_gb: float = 0.0
    """Memory of each GPU."""
    memory_gb: float = 0.0
    cores: int = 1
    slots: int = 1
    """Number of concurrent runs. Each has its own GPUs, and an equal share of cores and memory."""
    folder: str = ".local/state/vastrun/ssh-machines"
    """Where the boxes are: absolute, or below the home."""
    python: str = "python3"
    """What trains there, with what the job needs."""
    usd_per_hour: float = 0.0
    """Price of a slot."""


_TEXTS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "name": (_NAME, "lower-case letters, digits and hyphens"),
    "host": (_HOST, "a host name or an IP address"),
    "user": (_USER, "a user name"),
    "key": (re.compile(r"[^\x00-\x1f]{1,1000}"), "the path of a private key"),
    "host_key": (_FINGERPRINT, "a fingerprint as `ssh-keygen -l` prints it: SHA256:…"),
    "gpu_name": (_GPU, "a name such as RTX 4090"),
    "folder": (_FOLDER, "a path without spaces"),
    "python": (_PYTHON, "a path without spaces"),
}
_NUMBERS: Mapping[str, tuple[float, float]] = {
    "port": (1, 65535),
    "gpus": (0, 64),
    "gpu_memory_gb": (0, 1000),
    "memory_gb": (0, 100_000),
    "cores": (1, 10_000),
    "slots": (1, 64),
    "usd_per_hour": (0, 1000),
}
_WHOLE = ("port", "gpus", "cores", "slots")
_NEEDED = ("name", "host", "user")


def machines_path(environ: Mapping[str, str]) -> Path:
    """Return where the file is: VASTRUN_SSH_MACHINES, else beside vastrun's own settings."""
    if named := environ.get(VARIABLE):
        return Path(named).expanduser()
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "vastrun" / FILE_NAME


def read_machines(file: Path) -> tuple[Workstation, ...]:
    """Read the file. Raises UsageError where there is none, ConfigFileError with every fault of it."""
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        hint = f"list your machines there, or set {VARIABLE}: README.md of vastrun-ssh-machines shows how"
        raise UsageError(f"ssh-machines: there is no file {file}", hint=hint) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigFileError((f"{file}: cannot be read: {' '.join(str(error).split())[:300]}",)) from error
    rows = document.get("machines") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not 0 < len(rows) <= _MAX_MACHINES or set(document) != {"machines"}:
        raise ConfigFileError((f"{file}: expected the key `machines` with a list of 1 to {_MAX_MACHINES}",))
    faults = [
        f"{file}: machines[{number}].{fault}" for number, row in enumerate(rows) for fault in _faults(row)
    ]
    names = [row.get("name") for row in rows if isinstance(row, dict)]
    faults += [f"{file}: two machines are called {name}" for name in sorted(_twice(names))]
    if faults:
        raise ConfigFileError(tuple(faults))
    return tuple(Workstation(**row) for row in rows)


def _faults(row: Any) -> Iterator[str]:
    if not isinstance(row, dict):
        yield "name: expected a section with name, host and user"
        return
    for key in _NEEDED:
        if key not in row:
            yield f"{key}: missing"
    for key, value in row.items():
        if key in _TEXTS:
            form, expected = _TEXTS[key]
            if not isinstance(value, str) or not form.fullmatch(value):
                yield f"{key}: expected {expected}, got {value!r:.80}"
        elif key in _NUMBERS:
            low, high = _NUMBERS[key]
            kind = int if key in _WHOLE else (int, float)
            is_number = isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
            if not is_number or not low <= value <= high:
                noun = "a whole number" if key in _WHOLE else "a number"
                yield f"{key}: expected {noun} from {low:g} to {high:g}, got {value!r:.80}"
        else:
            yield f"{str(key)[:80]}: unknown key"


def _twice(names: list[Any]) -> set[str]:
    return {name for name in names if isinstance(name, str) and names.count(name) > 1}
