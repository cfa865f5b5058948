"""The wheels of an image, fetched by the pip of this computer: its settings and secrets stay here."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.core.errors import ImageError
from launcher.image.daemon import explained

if TYPE_CHECKING:
    from docker import DockerClient

_TIMEOUT_S = 1800
_OLDEST_GLIBC = 17
_COMPLETE = ".complete"
_PROBE = Path(__file__).with_name("interpreter_probe.py")


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """The Python that the wheels are for."""

    version: tuple[int, int]
    glibc: str
    machine: str

    @property
    def platforms(self) -> list[str]:
        """The tags of the wheels that it can use, the newest first."""
        newest = int(self.glibc.partition(".")[2] or _OLDEST_GLIBC)
        tags = [f"manylinux_2_{minor}_{self.machine}" for minor in range(newest, _OLDEST_GLIBC - 1, -1)]
        return [*tags, f"manylinux2014_{self.machine}", f"linux_{self.machine}"]


def interpreter_of(client: DockerClient, image: str) -> Interpreter:
    """Return the Python of an image. Raises ImageError where there is none."""
    with explained(f"cannot run python3 in {image}"):
        said = client.containers.run(
            image,
            ["-c", _PROBE.read_text(encoding="utf-8")],
            entrypoint="python3",
            remove=True,
            network_mode="none",
        )
    major, minor, glibc, machine = json.loads(said)
    return Interpreter(version=(major, minor), glibc=glibc, machine=machine)


def fetch(requirements: Iterable[Path], interpreter: Interpreter, folder: Path) -> None:
    """Fill the folder, once, with the wheels as pinned by their hashes. Raises ImageError."""
    complete = folder / _COMPLETE
    if complete.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    for file in requirements:
        _fetch(file, _command(file, interpreter, folder))
    complete.touch()


def _fetch(file: Path, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"pip takes more than {_TIMEOUT_S / 60:.0f} min for {file.name}") from error
    if done.returncode:
        raise ImageError(
            f"pip cannot fetch what {file.name} pins: {done.stderr.strip()[-1000:]}",
            hint="see that this works: python -m pip download pip",
        )


def _command(file: Path, interpreter: Interpreter, folder: Path) -> Sequence[str]:
    platforms = [word for tag in interpreter.platforms for word in ("--platform", tag)]
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--dest", str(folder), "--requirement", str(file), "--require-hashes", "--no-deps"),
        *("--only-binary", ":all:", "--implementation", "cp"),
        *("--python-version", "{}.{}".format(*interpreter.version), *platforms),
    ]
