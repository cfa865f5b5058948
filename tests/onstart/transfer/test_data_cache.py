"""A held machine downloads a file once, for all runs on it."""

import os
from pathlib import Path

import pytest

from tests.disks import may_be_made, small_disk
from tests.onstart.transfer.downloads import CONTENT, MEGABYTE, as_json, described, step
from tests.onstart.transfer.file_server import FileServer
from vastrun.contract.data_cache import DataCache
from vastrun.onstart.transfer.data_files import provide


def test_a_held_machine_downloads_a_file_once(server: FileServer, tmp_path: Path) -> None:
    shared = {"VASTRUN_SHARED_DATA": str(tmp_path / "shared")}
    file = as_json(described(server.url))
    code, lines = step(tmp_path / "first", [file], **shared)
    assert (code, lines[0]) == (0, "set/file.bin: downloading from 127.0.0.1 to this machine's cache")
    (tmp_path / "first/data/set/file.bin").write_bytes(b"changed by its program")
    code, lines = step(tmp_path / "second", [file | {"path": "other name"}], **shared)
    assert (code, lines) == (0, ["other name: copied from this machine's cache, 4.2 MB"])
    assert (tmp_path / "second/data/other name").read_bytes() == CONTENT
    assert len(server.ranges) == 1


def test_a_killed_run_leaves_its_part_to_the_machines_next(server: FileServer, tmp_path: Path) -> None:
    cache, file = DataCache(tmp_path / "shared"), described(server.url)
    with cache.entry("\n".join(file.checksum or ()), file.path) as cached:
        cached.part.write_bytes(CONTENT[:MEGABYTE])
    (tmp_path / "data").mkdir()
    provide(file, tmp_path / "data", cache, {})
    assert server.ranges == [f"bytes={MEGABYTE}-"]
    assert (tmp_path / "data/set/file.bin").read_bytes() == CONTENT


def test_a_disk_without_room_for_a_copy_has_the_file_alone(server: FileServer, tmp_path: Path) -> None:
    if not may_be_made():
        pytest.skip("this computer lets nobody mount a disk of their own")
    with small_disk(tmp_path / "disk", "54m") as disk:
        shared = {"VASTRUN_SHARED_DATA": str(disk / "shared")}
        code, lines = step(disk / "box", [as_json(described(server.url))], **shared)
        said = "set/file.bin: the disk has no room for a copy in this machine's cache"
        assert (code, lines[0]) == (0, said)
        assert (disk / "box/data/set/file.bin").read_bytes() == CONTENT


def test_a_damaged_cache_is_downloaded_again(server: FileServer, tmp_path: Path) -> None:
    shared = {"VASTRUN_SHARED_DATA": str(tmp_path / "shared")}
    file = as_json(described(server.url))
    step(tmp_path / "first", [file], **shared)
    (content,) = (tmp_path / "shared").rglob("content")
    content.chmod(0o600)
    content.write_bytes(b"?")
    assert step(tmp_path / "second", [file], **shared)[0] == 0
    assert (tmp_path / "second/data/set/file.bin").read_bytes() == CONTENT
    assert len(server.ranges) == 2


def test_the_file_that_was_not_used_for_the_longest_time_makes_room(tmp_path: Path) -> None:
    cache = DataCache(tmp_path)
    for number in range(3):
        with cache.entry(str(number), "x") as cached:
            cached.part.write_bytes(b"x")
            cached.keep("0" * 64)
            (digest,) = [path for path in tmp_path.rglob("digest") if path.stat().st_mtime > 1e9]
            os.utime(digest, (number + 1, number + 1))
    with cache.entry("1", "x"):  # in use
        assert not cache.make_room(10**18)
    kept = [cache.has(str(number)) for number in range(3)]
    assert kept == [False, True, False]
