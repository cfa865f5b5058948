"""Small disks, for what happens when one is full: root mounts them, anybody else in a namespace."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HOLD = 'mount -t tmpfs -o "size=$1,mode=0755" tmpfs "$2" && echo mounted && exec cat'
"""Holds the namespace, and so the disk, until its input ends."""


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """The folder, empty until now, is a disk of that size. Raises OSError where nobody may have one."""
    folder.mkdir(exist_ok=True)
    with _mounted(folder, size) if os.geteuid() == 0 else _borrowed(folder, size):
        yield folder


def may_be_made() -> bool:
    """Whether this computer lets us."""
    try:
        with tempfile.TemporaryDirectory() as folder, small_disk(Path(folder) / "disk", "64k") as disk:
            (disk / "file").write_bytes(b"content")
    except OSError:
        return False
    return True


def may_be_mounted() -> bool:
    """Whether they are where their folder is: elsewhere, who follows all links ends up beside the disk."""
    return os.geteuid() == 0 and may_be_made()


@contextmanager
def _mounted(folder: Path, size: str) -> Iterator[None]:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        raise PermissionError(done.stderr)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def _borrowed(folder: Path, size: str) -> Iterator[None]:
    """A link leads to the disk as the process sees it in whose namespace it is mounted."""
    place = folder.with_name(f"{folder.name}.disk")
    place.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _HOLD, "sh", size, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        if holder.stdout.readline() != b"mounted\n":
            raise PermissionError("this computer lets nobody mount a disk of their own")
        folder.rmdir()
        folder.symlink_to(f"/proc/{holder.pid}/root{place}")
        try:
            yield
        finally:
            folder.unlink()
