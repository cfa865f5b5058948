"""UserSshConfig: one line in the user's ~/.ssh/config, and a folder of `Host` blocks that it includes.

    config = UserSshConfig(Path.home() / ".ssh")
    config.write("vastrun-calm-heron-3f1a", entry_text)
    config.remove_stale(has_ended)

OpenSSH takes the first value that it finds for an option, so the line stands at the top of the file.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vastrun.launcher.core.errors import StorageError

_MARK = "# Written by vastrun ssh-config for run "
_RUN = re.compile(rf"{re.escape(_MARK)}(\S+)\n")
_KEY = re.compile(r'^ *IdentityFile "(/.+)"$', re.MULTILINE)


class UserSshConfig:
    """The folder ~/.ssh. Every file is replaced as a whole; other people's files there are left alone."""

    def __init__(self, folder: Path) -> None:
        self._config, self._entries = folder / "config", folder / "vastrun.d"

    def write(self, name: str, run_id: str, block: str) -> Path:
        """Write the entry of that name, and the line that includes it. Raises StorageError."""
        path = self._entries / f"{name}.conf"
        with _storage_errors(path):
            self._entries.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(path, f"{_MARK}{run_id}\n{block}", mode=0o600)
        self._include()
        return path

    def remove_stale(self, has_ended: Callable[[str], bool]) -> Sequence[str]:
        """Remove the entries of runs that have ended, or whose key was deleted; return their names."""
        removed = []
        for path in sorted(self._entries.glob("*.conf")):
            with _storage_errors(path):
                text = path.read_text(encoding="utf-8", errors="replace")
                run, key = _RUN.match(text), _KEY.search(text)
                if run is None or key is None:
                    continue  # the user's own
                if has_ended(run[1]) or not Path(key[1].replace("%%", "%")).exists():
                    path.unlink(missing_ok=True)
                    removed.append(path.stem)
        return removed

    def _include(self) -> None:
        """Put the line at the top of the file, once."""
        path = self._config.resolve()  # a link into a folder of dotfiles stays one
        pattern = str(self._entries.absolute() / "*.conf")
        line = f'Include "{pattern}"' if re.search(r"\s", pattern) else f"Include {pattern}"
        with _storage_errors(path):
            text = path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""
            if line in (present.strip() for present in _before_blocks(text)):
                return
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
            _replace(path, f"# Added by vastrun ssh-config --write\n{line}\n\n{text}", mode=mode)


def _before_blocks(text: str) -> Iterator[str]:
    """Yield the lines that hold for every host."""
    for line in text.splitlines():
        if re.match(r"\s*(Host|Match)\b", line, re.IGNORECASE):
            return
        yield line


def _replace(path: Path, text: str, *, mode: int) -> None:
    """Write the file so that a reader sees the old or the new text."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.touch(mode=0o600, exist_ok=False)
        part.write_bytes(text.encode("utf-8", "surrogateescape"))
        part.chmod(mode)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}",
            hint="vastrun ssh-config RUN, without --write, prints it",
        ) from error
