"""Credentials: files of the code folder that hold them, and so stay here unless the job names them."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import PurePosixPath

from vastrun.contract.secrets import SECRET, hide_forms, is_secret_name
from vastrun.launcher.bundle.outgoing import OutgoingFile

_MAX_BYTES = 1 << 16
"""Files of credentials are small."""
_FOLDERS = frozenset((".aws", ".azure", ".docker", ".gnupg", ".kaggle", ".kube", ".ssh"))
_NAMES = re.compile(
    r"\.env(?!.*(example|sample|template)).*|[._]netrc|\.pgpass|\.git-credentials|kaggle\.json"
)
_CODE = frozenset(
    (".c", ".cc", ".cpp", ".cu", ".h", ".ipynb", ".js", ".jl", ".md", ".py", ".r", ".rs", ".rst", ".ts")
)
"""Without it the program does not run, or nothing is gained: it is shipped, whatever it holds."""
_ASSIGNED = re.compile(r"""(?<![\w-])([\w-]{1,64})["']? {0,8}[:=] {0,8}["']?([\w+/=.-]{20,200})""")
_LFS = b"version https://git-lfs.github.com/spec/"


def holds_credentials(file: OutgoingFile) -> bool:
    """Tell by its place, the forms of known tokens, or long random values under secret names."""
    path = PurePosixPath(file.name)
    if not _FOLDERS.isdisjoint(path.parts) or _NAMES.fullmatch(path.name):
        return True
    if path.suffix.lower() in _CODE or b"\0" in (content := _head(file)):
        return False
    # The query and the fragment of a link name files, checksums and places, too: only a name tells.
    text = re.sub("[?#]", " ", content.decode(errors="replace"))
    return SECRET in hide_forms(text) or any(
        is_secret_name(name)
        and re.search(r"\d", value) is not None
        and re.search(r"[a-zA-Z]", value) is not None
        for name, value in _ASSIGNED.findall(text)
    )


def is_lfs_pointer(file: OutgoingFile) -> bool:
    """Tell whether it stands for a file that git LFS has not fetched."""
    return _head(file).startswith(_LFS)


def _head(file: OutgoingFile) -> bytes:
    """Return the content of a small file; nothing of a larger one, a link, or one that cannot be read."""
    if file.target is None and 0 < file.size <= _MAX_BYTES:
        with suppress(OSError):
            return file.path.read_bytes()
    return b""
