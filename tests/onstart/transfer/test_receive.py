"""Files that the launcher sends: stored by content, checked, shared by the slots of a machine."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from vastrun.contract import layout
from vastrun.contract.data_files import DataReceipt, SentFile
from vastrun.launcher.bundle.local_data import list_text
from vastrun.onstart.transfer.receive import Receiver
from vastrun.onstart.transfer.sources import DataFileError


def file(path: str, text: str, *, size: int | None = None, executable: bool = False) -> SentFile:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return SentFile(path=path, size=len(text) if size is None else size, sha256=digest, executable=executable)


FILES = (
    file("x/a", "alpha"),
    file("x/b\n\udcff", "beta"),
    file("x/deep/again", "alpha", executable=True),
    file("x/empty", ""),
    SentFile(path="x/link", target="deep/again"),
    SentFile(path="../code/in/x", target="../../data/x"),
)


def box(folder: Path, *files: SentFile) -> Path:
    folder.mkdir()
    (folder / layout.DATA_LIST).write_text(list_text(files))
    return folder


def arrive(folder: Path, content: str, *pieces: tuple[int, int, int]) -> None:
    (folder / layout.DATA_PACK).write_bytes(json.dumps(pieces).encode() + b"\n" + content.encode())


def test_contents_get_their_names_once_their_checksum_matches(tmp_path: Path) -> None:
    folder = box(tmp_path / "box", *FILES)
    assert Receiver(folder, None).run() == DataReceipt(missing=(0, 1))
    arrive(folder, "alp", (0, 0, 3))
    assert Receiver(folder, None).run() == DataReceipt(missing=(0, 1), at=3)
    arrive(folder, "HAbeta", (0, 3, 2), (1, 0, 4))
    assert Receiver(folder, None).run() == DataReceipt(missing=(0,), damaged=0)
    arrive(folder, "alpha", (0, 0, 5))
    assert Receiver(folder, None).run() == Receiver(folder, None).run() == DataReceipt()
    data = folder / layout.DATA / "x"
    contents = {"a": "alpha", "b\n\udcff": "beta", "link": "alpha", "empty": ""}
    assert {name: (data / name).read_text() for name in contents} == contents
    assert (folder / "code/in/x/a").read_text() == "alpha"
    assert os.access(data / "deep/again", os.X_OK)
    assert not os.access(data / "a", os.X_OK)
    assert not (folder / "inbox/data").exists() or list((folder / "inbox/data").iterdir()) == []


def test_one_slot_receives_and_the_others_copy(tmp_path: Path) -> None:
    shared, (one, two) = tmp_path / "shared", (box(tmp_path / name, *FILES) for name in ("one", "two"))
    assert Receiver(one, shared).run() == DataReceipt(missing=(0, 1))
    assert Receiver(two, shared).run() == DataReceipt(missing=(0, 1), waits=True)
    arrive(one, "alphabeta", (0, 0, 5), (1, 0, 4))
    assert Receiver(one, shared).run() == Receiver(two, shared).run() == DataReceipt()
    assert (two / layout.DATA / "x/link").read_text() == "alpha"


def test_slot_takes_over_from_one_that_receives_nothing_any_more(tmp_path: Path) -> None:
    shared, (one, two) = tmp_path / "shared", (box(tmp_path / name, *FILES) for name in ("one", "two"))
    Receiver(one, shared).run()
    os.utime(one / "inbox/data", (0, 0))
    assert Receiver(two, shared).run() == DataReceipt(missing=(0, 1))
    assert Receiver(one, shared).run().waits


def test_files_that_do_not_fit_on_the_disk_are_refused_before_the_first_byte(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"the files need 1000000\.00 GB") as raised:
        Receiver(box(tmp_path / "box", file("x", "", size=10**15)), None).run()
    assert raised.value.blame == "disk"
