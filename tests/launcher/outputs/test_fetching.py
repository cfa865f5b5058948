"""One file or folder of a program, fetched by its path: all that a box lists for it passes the gate."""

import hashlib
import itertools
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakebox import manifest_of
from tests.launcher.outputs.boxes import MemoryBox, files_in
from tests.launcher.outputs.training_box import TrainingBox
from vastrun.launcher.core import CommandResult, PullResult, Run
from vastrun.launcher.core.errors import BoxError, UnreachableError
from vastrun.launcher.outputs.store import FolderStore

CONTENT = {"code/w/a.pt": b"aaa", "code/w/b.pt": b"bb"}


class ListingBox(MemoryBox):
    """Answers with a list of files."""

    def __init__(self, entries: Any, files: dict[str, bytes] = CONTENT) -> None:
        super().__init__(dict(files))
        self.content = entries if isinstance(entries, bytes) else json.dumps({"files": entries}).encode()
        self.commands: list[list[str]] = []

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        words = shlex.split(command)
        self.commands.append(words)
        self.files[words[3]] = self.content
        return CommandResult(exit_code=0, stdout="", stderr="")


def entry(path: str, **changes: Any) -> dict[str, Any]:
    content = CONTENT.get(path, b"")
    told = {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return told | changes


def fetched(run: Run, box: MemoryBox, path: str | None = "w") -> PullResult:
    store = FolderStore()
    store.check(run)
    return store.fetch(run, box, path)


def test_a_folder_comes_to_its_place_in_the_folder_of_the_run(run: Run) -> None:
    got = fetched(run, ListingBox([entry(path) for path in CONTENT]))
    assert got == PullResult(files=2, bytes=5)
    files = files_in(run.out_dir)
    assert (files["outputs/w/a.pt"], files["outputs/w/b.pt"]) == (b"aaa", b"bb")


def test_an_older_copy_does_not_count_as_a_file_that_arrived(run: Run) -> None:
    fetched(run, ListingBox([entry("code/w/a.pt")]))
    got = fetched(run, ListingBox([entry("code/w/a.pt", sha256="0" * 64)]))
    assert got == PullResult(files=0, bytes=0, damaged=("code/w/a.pt",))


@pytest.mark.parametrize("path", ["w; rm -rf /", "$(id)", "a'b", "-x", None])
def test_a_path_is_one_word_of_the_command(run: Run, path: str | None) -> None:
    box = ListingBox([])
    fetched(run, box, path)
    ((*words, name, last),) = [*box.commands] if path is not None else [[*box.commands[0], None]]
    assert words == ["bash", "onstart/module.sh", "transfer.path_listing"]
    assert re.fullmatch(r"pull/[0-9a-f]{16}\.json", name)
    assert last == path


def test_another_output_of_the_same_name_is_not_overwritten(run: Run) -> None:
    FolderStore().check(run)
    here = Path(run.out_dir) / "outputs" / "w" / "a.pt"
    here.parent.mkdir(parents=True)
    here.write_bytes(b"of an earlier state")
    fetched(run, ListingBox([entry("code/w/a.pt")]))
    assert here.read_bytes() == b"aaa"
    (Path(run.out_dir) / "details").mkdir()
    (Path(run.out_dir) / "details" / "manifest.json").write_text("{}")
    here.write_bytes(b"from the folder for outputs")
    for _ in range(2):
        got = fetched(run, ListingBox([entry("code/w/a.pt")]))
        assert got.renamed == {"code/w/a.pt": "outputs/w/a.pt.1"}
    assert here.read_bytes() == b"from the folder for outputs"


def test_what_was_on_its_way_by_other_means_stays(run: Run) -> None:
    FolderStore().check(run)
    part = Path(run.out_dir) / ".incoming" / "step-000005" / "manifest.json"
    part.parent.mkdir(parents=True)
    part.write_text("{}")
    fetched(run, ListingBox([entry("code/w/a.pt")]))
    assert part.exists()


class TrainingListingBox(TrainingBox):
    """Trains, and lists a large file; `meanwhile` happens after each megabyte of it."""

    def __init__(self, content: bytes, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.files["code/best.pt"] = content
        self.meanwhile = meanwhile

    def run(self, command: str, *, timeout_s: float) -> CommandResult:
        if "transfer.path_listing" not in command:
            return super().run(command, timeout_s=timeout_s)
        listed = {"code/best.pt": self.files["code/best.pt"]}
        self.files[shlex.split(command)[3]] = manifest_of(listed)
        return CommandResult(exit_code=0, stdout="", stderr="")

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        content = super().read(path, offset=offset, limit=limit)
        if path == "code/best.pt":
            self.meanwhile()
        return content


BEST = bytes(range(256)) * (12 << 10)


@pytest.mark.parametrize("checkpoint", [b"another", BEST])
def test_a_file_comes_whole_though_a_launcher_downloads_checkpoints_meanwhile(
    run: Run, checkpoint: bytes
) -> None:
    store = FolderStore()
    store.check(run)
    steps = itertools.count(1)
    copies = []

    def launcher() -> None:
        box.save(next(steps), {"best.pt": checkpoint})
        copies.append(store.download_checkpoint(run, box, limit=1 << 20))

    box = TrainingListingBox(BEST, launcher)

    got = store.fetch(run, box, "best.pt")

    assert got == PullResult(files=1, bytes=len(BEST))
    assert (Path(run.out_dir) / "outputs" / "best.pt").read_bytes() == BEST
    assert copies[-1] is not None
    assert copies[-1].is_whole
    assert not any(copy.damaged for copy in copies if copy is not None)


def test_a_file_comes_whole_though_a_launcher_collects_the_run_meanwhile(run: Run) -> None:
    store = FolderStore()
    store.check(run)
    box = TrainingListingBox(BEST, lambda: store.collect(run, box))
    box.end()
    assert store.fetch(run, box, "best.pt") == PullResult(files=1, bytes=len(BEST))
    assert box.asked.count(("code/best.pt", 1 << 20)) == 3


def test_a_file_that_a_broken_line_cut_is_continued(run: Run) -> None:
    store = FolderStore()
    store.check(run)
    box = TrainingListingBox(BEST, lambda: setattr(box, "cut", True))
    with pytest.raises(UnreachableError):
        store.fetch(run, box, "best.pt")
    box.cut, box.meanwhile = False, lambda: None
    assert store.fetch(run, box, "best.pt") == PullResult(files=1, bytes=len(BEST))
    assert box.asked.count(("code/best.pt", 1 << 20)) == 3
    assert not [path for path in Path(run.out_dir).iterdir() if path.name.startswith(".pull")]


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../../etc/cron.d/x", size=2)],
        [entry("/etc/passwd", size=2)],
        [entry("code/.git/hooks/post-checkout", size=2)],
        [entry("run/outcome.json", size=2)],
        [entry("run/checkpoints/latest.json", size=2)],
        [entry("code/w/a.pt", size=-1)],
        [entry("code/w/a.pt", size=10**17, sha256="0" * 64)],
        [entry("code/w/a.pt", sha256="0" * 64)],
        [entry("code/w/a.pt", sha256=5)],
        [entry("code/w\x1b[2J/a.pt")],
        [entry("code/w/a.pt")] * 60_000,
        [entry("code/w/a.pt"), entry("code/w/a.pt/b")],
        b"{",
        b"[]",
        b'{"files": 7}',
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_odd_list_is_refused_and_nothing_is_written_elsewhere(run: Run, entries: Any) -> None:
    got = fetched(run, ListingBox(entries))
    assert got.damaged
    assert {name for name in files_in(run.out_dir) if not name.startswith(".")} <= {"outputs/w/a.pt"}


def test_a_list_without_end_is_refused(run: Run) -> None:
    with pytest.raises(BoxError):
        fetched(run, ListingBox(b" " * (20 << 20)))


def test_a_box_that_cannot_list_says_why(run: Run) -> None:
    class Failing(ListingBox):
        def run(self, command: str, *, timeout_s: float) -> CommandResult:
            return CommandResult(exit_code=1, stdout="", stderr="no python\x1b[2J")

    with pytest.raises(BoxError, match="cannot list w: 'no python"):
        fetched(run, Failing([]))
