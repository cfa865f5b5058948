"""Data rules: conditions on the files of `data:`, checked before a machine is rented."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from vastrun.contract.data_files import hub_address, path_fault
from vastrun.launcher.config.source import KeyPath
from vastrun.launcher.core.job import DataFile, JobSpec

_EXPECTED_URL = "expected an https://, hf:// or s3:// URL"


def data_conflicts(spec: JobSpec) -> Iterator[Conflict]:
    """Yield every conflict in `data:`."""
    targets: dict[PurePosixPath, int] = {}
    for i, file in enumerate(spec.data):
        path: KeyPath = ("data", i)
        fault = _url_fault(file)
        if fault is not None:
            yield Conflict((*path, "url"), fault)
            continue
        if file.url is not None:
            yield from _checks(file, path)
        elif file.path is None:
            yield Conflict(path, "expected url, or path: a file or folder of this computer")
            continue
        elif any((file.sha256, file.md5, file.size, file.max_gb)):
            yield Conflict(path, "expected no checksum and no size: vastrun computes those of local files")
        yield from _place(file, path, targets)
        targets[PurePosixPath(file.target)] = i
    if text := disk_fault(spec):
        yield Conflict(("data",), text, (("resources", "disk_gb"),))


def disk_fault(spec: JobSpec) -> str:
    """Return what is wrong where the data do not fit on the disk; empty where they do."""
    room_gb = spec.resources.disk_gb
    if spec.data_gb <= room_gb:
        return ""
    return f"needs {spec.data_gb:.3g} GB, but resources.disk_gb is {room_gb:g}: raise resources.disk_gb"


def _url_fault(file: DataFile) -> str | None:
    """Return what is wrong with a URL, which is not shown: it may hold a key."""
    if file.url is None:
        return None
    try:
        parts = urlsplit(file.url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return _EXPECTED_URL
    if (
        parts.scheme not in ("https", "http", "hf", "s3")
        or not host
        or not file.url.isascii()
        or re.search(r"[\s\x00-\x1f]", file.url)
    ):
        return f"{_EXPECTED_URL} of printable ASCII characters"
    if port == 0 or parts.fragment or (parts.scheme in ("hf", "s3") and (parts.query or port)):
        return f"{_EXPECTED_URL} without a port 0, and without # and ?, which hf:// and s3:// do not support"
    if parts.scheme != "hf" and "@" in parts.netloc:
        return "expected a URL without a password: others may read the job file"
    if parts.scheme == "hf":
        try:
            hub_address(file.url)
        except ValueError as error:
            return str(error)
    if parts.scheme == "s3" and not parts.path.strip("/"):
        return "expected s3://BUCKET/KEY"
    return None


def _checks(file: DataFile, path: KeyPath) -> Iterator[Conflict]:
    if (file.size is None) == (file.max_gb is None):
        text = "expected one of size (its exact number of bytes) and max_gb (its maximum)"
        yield Conflict(path, text)
    for key, digits in {"sha256": 64, "md5": 32}.items():
        digest = getattr(file, key)
        if digest is not None and not re.fullmatch(f"[0-9a-f]{{{digits}}}", digest):
            text = f"expected {digits} hexadecimal digits in lower case, got {digest[:80]!r}"
            yield Conflict((*path, key), text)
    if file.sha256 is not None and file.md5 is not None:
        yield Conflict((*path, "md5"), "conflicts with sha256: give one of the two, preferably sha256")
    if (file.url or "").startswith("http://") and file.sha256 is None and file.md5 is None:
        text = (
            "http:// needs sha256 or md5, because anyone on the network can change the file; or use https://"
        )
        yield Conflict((*path, "url"), text)


def _place(file: DataFile, path: KeyPath, targets: dict[PurePosixPath, int]) -> Iterator[Conflict]:
    key: KeyPath = path if file.path is None else (*path, "path")
    if not file.target:
        yield Conflict(path, f"needs path: {file.path or 'the URL'} does not end with a name")
        return
    if fault := path_fault(file.target):
        yield Conflict(key, fault)
        return
    target = PurePosixPath(file.target)
    for other, i in targets.items():
        if other == target or other in target.parents or target in other.parents:
            text = f"{file.target} conflicts with {other} of data[{i}]: each file needs a path of its own"
            yield Conflict(key, text)
            return


@dataclass(frozen=True)
class Conflict:
    """A value that conflicts with others."""

    path: KeyPath
    text: str
    about: tuple[KeyPath, ...] = ()
    """Other values on which it depends: it is not reported when one of those is invalid."""
