"""Entries of `checkpoints.files`: what counts as one, how long it must rest, and when it is complete."""

import json
import os
import struct
import zipfile
from pathlib import Path

import pytest

from vastrun.onstart.supervision.checkpoint_entries import (
    Entry,
    EntryFile,
    completeness,
    entry_at,
    find_entries,
    is_sidecar,
    open_for_writing,
    printable,
)


def file(name: str, modified_s: float, size: int = 7) -> EntryFile:
    return EntryFile(
        name=name, source=Path(name), size=size, modified_ns=int(modified_s * 1e9), id=(1, hash(name))
    )


def entry(*files: EntryFile, is_folder: bool = True) -> Entry:
    return Entry(name="a", is_folder=is_folder, files=files, was_renamed=False, leads_out=False)


def found(folder: Path, pattern: str = "*", **limit: int) -> list[str]:
    return [entry.name for entry in find_entries(folder, pattern, **limit).entries]


def at(path: Path, seconds: float, content: bytes = b"x") -> Path:
    """A file that was last written then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (seconds, seconds))
    return path


@pytest.mark.parametrize(
    ("took_s", "quiet_s"), [(0, 5), (2.5, 5), (3, 6), (59, 118), (60, 120), (61, 120), (3600, 120)]
)
def test_a_folder_rests_twice_as_long_as_it_took_within_limits(took_s: float, quiet_s: float) -> None:
    files = file("a/2", 100 + took_s, 3), file("a/1", 100, 5), file("a/3", 100 + took_s / 2, 2)
    made = entry(*files)
    assert (made.quiet_s, made.modified_ns, made.size) == (quiet_s, int((100 + took_s) * 1e9), 10)
    assert entry(*files, is_folder=False).quiet_s == 0


@pytest.mark.parametrize(
    ("name", "pattern", "is_one"),
    [
        ("latest", "*", True),
        ("latest_universal", "*", True),
        ("checkpoint", "*", True),
        ("latest.pt", "*", False),
        ("model.pt", "*", False),
        *((f"notes{suffix}", "*", True) for suffix in (".txt", ".json", ".jsonl", ".yaml", ".yml", ".csv")),
        *((f"notes{suffix}", "*", True) for suffix in (".log", ".md", ".html", ".png", ".py", ".JSON")),
        ("weights.json", "out/*.json", False),
        ("weights.JSON", "out/*.json", False),
        ("weights.yaml", "out/*.json", True),
    ],
)
def test_a_file_next_to_checkpoints_is_known_by_its_name(name: str, pattern: str, is_one: bool) -> None:
    assert is_sidecar(name, pattern) is is_one


def test_entries_are_listed_newest_first_without_temporary_files_links_and_empty_folders(
    tmp_path: Path,
) -> None:
    for number, name in enumerate(["b.pt", "a.pt", "c/state.pt", "d.pt"]):
        at(tmp_path / name, 100.0 + number)
    for name in (
        ".hidden.pt",
        "tmp_x.pt",
        "tmp-x.pt",
        "TMP.x",
        "x.tmp",
        "x.pt.part",
        "x.PARTIAL",
        "x.lock.1",
    ):
        at(tmp_path / name, 200.0)
    at(tmp_path / "temple.pt", 99.0)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link.pt").symlink_to("a.pt")
    assert found(tmp_path) == ["d.pt", "c", "a.pt", "b.pt", "temple.pt"]


def test_of_more_files_than_a_look_reads_the_newest_are_taken(tmp_path: Path) -> None:
    for number in range(4):
        os.utime(at(tmp_path / f"{number}" / "a.pt", 100.0 + number).parent, (100.0 + number,) * 2)
    seen = find_entries(tmp_path, "*", max_files=4)
    assert ([entry.name for entry in seen.entries], seen.is_cut) == (["3", "2", "1", "0"], False)
    seen = find_entries(tmp_path, "*", max_files=3)
    assert (len(seen.entries), seen.is_cut) == (3, True)
    at(tmp_path / "3" / "b.pt", 104.0)
    seen = find_entries(tmp_path, "*", max_files=4)
    assert ([entry.name for entry in seen.entries], seen.is_cut) == (["3", "2", "1"], True)


def test_what_leads_out_or_has_control_characters_is_named_and_not_taken(tmp_path: Path) -> None:
    root, outside = tmp_path / "code", at(tmp_path / "outside" / "w.pt", 100.0)
    at(root / "good" / "w.pt", 100.0)
    at(root / "bad" / "w.pt", 100.0)
    (root / "bad" / "link.pt").symlink_to(outside)
    (root / "far").symlink_to(outside.parent)
    at(root / "odd\x1b" / "w.pt", 100.0)
    at(root / "inside" / "w.pt", 100.0)
    (root / "inside" / "same.pt").symlink_to("w.pt")
    seen = find_entries(root.resolve(), "*")
    assert sorted(entry.name for entry in seen.entries) == ["good", "inside"]
    assert (seen.outside, seen.unprintable, seen.is_cut) == (("bad",), ("odd\\x1b",), False)
    assert find_entries(root.resolve(), "far/*").outside == ("far/w.pt",)
    assert printable("a\tb\u200e") == "a\\tb\\u200e"


def test_an_entry_tells_each_file_and_whether_it_was_renamed(tmp_path: Path) -> None:
    path = at(tmp_path / "a" / "w.pt", 100.0, b"12345")
    (tmp_path / "a" / "link.pt").symlink_to("w.pt")
    at(tmp_path / "a" / "new\nline", 100.0)
    made = entry_at(str(tmp_path / "a"), tmp_path)
    assert made is not None
    assert [(f.name, f.source, f.size, f.modified_ns) for f in made.files] == [
        ("a/link.pt", path, 5, 100 * 10**9),
        ("a/w.pt", path, 5, 100 * 10**9),
    ]
    stat = path.stat()
    assert {f.id for f in made.files} == {(stat.st_dev, stat.st_ino)}
    assert (made.is_folder, made.leads_out, made.has_control_characters) == (True, False, True)
    assert entry_at(str(tmp_path / "none"), tmp_path) is None
    single = entry_at(str(path), tmp_path)
    assert single is not None
    assert (single.name, single.is_folder, single.was_renamed) == ("a/w.pt", False, True)
    written = tmp_path / "later.pt"
    written.write_bytes(b"x")
    future = written.stat().st_mtime + 1000
    os.utime(written, (future, future))
    later = entry_at(str(written), tmp_path)
    assert later is not None and not later.was_renamed


def zipped(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", b"x" * 100)
    return path.read_bytes()


def safetensors(*ends: int) -> bytes:
    tensors = {f"t{end}": {"data_offsets": [0, end]} for end in ends}
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensors}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(max(ends, default=0))


@pytest.mark.parametrize(
    ("names", "complete"),
    [
        (["w.bin"], None),
        (["w.bin", "w.tmp"], False),
        (["trainer_state.json", "w.bin"], True),
        (["training_args.bin", "w.bin"], False),
        (["optimizer.bin"], False),
        (["optimizer.bin", "random_states_0.pkl"], None),
        (["0.distcp", ".metadata"], True),
        (["0.distcp"], False),
        (["m/0.distcp", "m/.metadata", "o/0.distcp"], False),
        (["m/0.distcp", "m/.metadata", "o/0.distcp", "o/.metadata"], True),
    ],
)
def test_a_folder_is_complete_by_the_mark_of_its_framework(
    tmp_path: Path, names: list[str], complete: bool | None
) -> None:
    for name in names:
        at(tmp_path / "a" / name, 100.0, b"{}")
    made = entry_at(str(tmp_path / "a"), tmp_path)
    assert made is not None
    assert completeness(made) is complete


def test_a_file_is_complete_by_its_format(tmp_path: Path) -> None:
    whole = zipped(tmp_path / "zip")
    cases: list[tuple[str, bytes, bool | None]] = [
        ("w.pt", whole, True),
        ("w.pt", whole[:-1], False),
        ("w.pt", b"PK\x03\x04", False),
        ("w.pt", b"PK\x03", None),
        ("w.safetensors", safetensors(8, 16), True),
        ("w.safetensors", safetensors(8, 16)[:-1], False),
        ("w.safetensors", safetensors(8, 16) + b"x", False),
        ("w.safetensors", safetensors(), True),
        ("w.safetensors", b"\x08", False),
        ("w.safetensors", struct.pack("<Q", 2) + b"[]", False),
        ("w.h5", b"x", None),
        ("w.h5", b"", False),
    ]
    for name, content, complete in cases:
        made = entry_at(str(at(tmp_path / name, 100.0, content)), tmp_path)
        assert made is not None
        assert completeness(made) is complete, (name, content[:20])


@pytest.mark.parametrize(("before", "complete"), [(998, False), (999, False), (1000, True)])
def test_first_thousand_files_of_a_folder_are_checked(tmp_path: Path, before: int, complete: bool) -> None:
    good, bad = at(tmp_path / "good", 100.0), at(tmp_path / "bad.safetensors", 100.0)
    files = [EntryFile(name=f"a/{n}", source=good, size=1, modified_ns=1, id=(1, n)) for n in range(before)]
    files += [EntryFile(name="a/x.safetensors", source=bad, size=1, modified_ns=1, id=(1, 1))]
    files += [EntryFile(name="a/trainer_state.json", source=good, size=1, modified_ns=1, id=(1, 2))]
    assert completeness(entry(*files)) is complete


def test_files_that_a_process_of_this_run_writes_are_known(tmp_path: Path) -> None:
    names = ("written", "appended", "both", "read")
    paths = [at(tmp_path / name, 100.0) for name in names]
    flags = (os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR, os.O_RDONLY)
    opened = [os.open(path, flag) for path, flag in zip(paths, flags, strict=True)]
    child = os.fork()
    if child == 0:
        os.read(opened[3], 1)
        os.kill(os.getpid(), 19)  # it stays until it is killed
        os._exit(0)
    try:
        os.waitpid(child, os.WUNTRACED)
        stats = [path.stat() for path in paths[:3]]
        assert open_for_writing(tmp_path) == {(stat.st_dev, stat.st_ino) for stat in stats}
        assert open_for_writing(tmp_path / "elsewhere") == set()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        for number in opened:
            os.close(number)
