"""Data files: what a job's `data:` brings to a machine, and who is to blame when that fails.

Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote, unquote

Blame = Literal["job", "server", "disk", "host"]
"""`job`: its URL, checksum or credentials, wrong on any machine. `server`: the one that has the file."""

EXIT_OF_BLAME: Mapping[Blame, int] = {"job": 65, "host": 68, "server": 69, "disk": 74}
"""Exit code of the step that downloads data; the numbers are those of sysexits.h."""

HUB_ENDPOINT = "https://huggingface.co"
_HUB_URL = re.compile(
    r"hf://(?P<kind>datasets/|spaces/|)(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[^/]+))?/(?P<path>.+)"
)
MAX_PATH_CHARS = 255


@dataclass(frozen=True, kw_only=True)
class JobDataFile:
    """A file that is downloaded before the ranks start."""

    url: str
    path: str
    """Path relative to the data folder."""
    max_bytes: int
    """Size in bytes, or its limit where the size is unknown."""
    size: int | None = None
    """Exact size in bytes; None: unknown."""
    sha256: str | None = None
    md5: str | None = None

    @property
    def checksum(self) -> tuple[str, str] | None:
        """Return the algorithm and the expected digest; None: the job names none."""
        if self.sha256 is not None:
            return "sha256", self.sha256
        return None if self.md5 is None else ("md5", self.md5)


@dataclass(frozen=True, kw_only=True)
class SentFile:
    """A file, or a link, that the launcher sends to the data folder."""

    path: str
    """Path relative to the data folder."""
    size: int = 0
    sha256: str = ""
    executable: bool = False
    target: str | None = None
    """Target of a link, relative to the link; None for a file."""


@dataclass(frozen=True, kw_only=True)
class DataReceipt:
    """Contents that a machine lacks of those that the launcher sends, by their index."""

    missing: tuple[int, ...] = ()
    at: int = 0
    """Bytes of the first one that it has."""
    waits: bool = False
    """True while another run on the machine receives the same contents."""
    damaged: int | None = None
    """A content that arrived with another checksum."""


def contents_of(files: Iterable[SentFile]) -> list[list[SentFile]]:
    """Return the files by content, in their order, without links and empty files."""
    found: dict[str, list[SentFile]] = {}
    for file in files:
        if file.size and file.target is None:
            found.setdefault(file.sha256, []).append(file)
    return list(found.values())


def hub_address(url: str, endpoint: str = HUB_ENDPOINT) -> str:
    """Return the web address of a file that an `hf://` URL names. Raises ValueError for another form.

    The form is that of `huggingface_hub`: hf://datasets/OWNER/NAME@REVISION/PATH; a model has no prefix.
    A revision with a slash is written `refs%2Fpr%2F1`.
    """
    found = _HUB_URL.fullmatch(url)
    if found is None:
        raise ValueError(
            "expected hf://datasets/OWNER/NAME@REVISION/PATH, or hf://OWNER/NAME/PATH of a model"
        )
    revision = quote(unquote(found["revision"] or "main"), safe="")
    path = quote(unquote(found["path"]))
    return f"{endpoint.rstrip('/')}/{found['kind']}{found['repo']}/resolve/{revision}/{path}"


def path_fault(path: str) -> str | None:
    """Return what is wrong with a path in the data folder; None: nothing."""
    parts = PurePosixPath(path).parts
    # Hidden names are those of incomplete files.
    if not parts or PurePosixPath(path).is_absolute() or any(part.startswith(".") for part in parts):
        return f"expected a path inside $VASTRUN_DATA, without names that begin with a dot, got {path!r}"
    if not path.isprintable() or "\\" in path or len(path.encode()) > MAX_PATH_CHARS or path.endswith("/"):
        return f"expected a path of at most {MAX_PATH_CHARS} printable characters without \\, got {path!r}"
    return None
