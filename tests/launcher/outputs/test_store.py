"""The output store, against a box in memory and real files here."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.core import Completed, Evidence, Phase, Run, StepEnd
from launcher.core.errors import NoRoomError, StorageError, UnreachableError, UsageError
from launcher.outputs.store import FolderStore
from tests import disks, parts
from trainer.contract import layout
from trainer.contract.outcome import Outcome

OUTCOME = Outcome(
    kind="train", reason="finished", detail="", started_at=0.0, ended_at=1.0, world_size=1, ranks=()
)
LINES = "1.000 rank0 step 1\n1.500 rank0 gemäß\n"


class MemoryBox:
    """A Remote that only reads, from a dictionary."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        self.reads_left = 10**9
        """Of outputs, before the cable is pulled."""
        self.flips: set[str] = set()
        """Files whose first read is damaged on the way."""

    def read(self, path: str, *, offset: int = 0, limit: int = 1 << 20) -> bytes:
        if path.startswith(layout.OUTPUTS):
            if not self.reads_left:
                raise UnreachableError("cable pulled")
            self.reads_left -= 1
        self.asked.append(path)
        content = self.files.get(path, b"")[offset : offset + limit]
        if path in self.flips:
            self.flips.remove(path)
            return bytes([content[0] ^ 1]) + content[1:]
        return content

    def run(self, command: str, *, timeout_s: float) -> Completed:
        raise AssertionError("an output store runs nothing")

    def put(self, local_path: str, path: str) -> None:
        raise AssertionError("an output store writes nothing")

    def write(self, path: str, content: bytes, *, mode: int = 0o600) -> None:
        raise AssertionError("an output store writes nothing")

    def close(self) -> None:
        pass


def box_with(files: dict[str, bytes], *, manifest: dict[str, bytes] | None = None) -> MemoryBox:
    """A box that has ended, whose manifest names `files`, or what `manifest` says."""
    entries = [
        {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for path, content in (files if manifest is None else manifest).items()
    ]
    ended = {layout.EXIT: b"0\n", layout.LEASE_LOG: b"armed\n", layout.LOG: LINES.encode()}
    return MemoryBox({**ended, **files, layout.MANIFEST: json.dumps({"files": entries}).encode()})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return run_in(tmp_path / "runs" / "calm-heron-3f1a")


def run_in(folder: Path) -> Run:
    return Run(
        id="calm-heron-3f1a",
        job="job",
        spec_json="{}",
        provider="local",
        phase=Phase.COLLECT,
        out_dir=str(folder),
        created_at=0.0,
        phase_at=0.0,
    )


def files_in(folder: str) -> dict[str, bytes]:
    root = Path(folder)
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_the_log_comes_in_parts_and_each_byte_once(run: Run) -> None:
    box = MemoryBox({layout.LOG: LINES[:25].encode()})
    assert FolderStore().pump(run, box) == LINES[:19]
    box.files[layout.LOG] = LINES.encode()
    assert FolderStore().pump(run, box) == LINES[19:]
    assert FolderStore().pump(run, box) == ""
    assert files_in(run.out_dir) == {"log.txt": LINES.encode()}


def test_a_log_that_was_begun_anew_on_the_box_is_kept_beside_the_new_one(run: Run) -> None:
    box = MemoryBox({layout.LOG: LINES.encode()})
    FolderStore().pump(run, box)
    for number, text in enumerate(("2.000 rank0 again\n", "3.000 rank0 and again\n"), 1):
        held = (Path(run.out_dir) / "log.txt").read_text()
        box.files[layout.LOG] = text.encode()
        assert FolderStore().pump(run, box) == text
        assert (Path(run.out_dir) / f"log.txt.{number}").read_text() == held


def test_a_pump_cut_off_in_mid_line_goes_on_where_the_file_ends(run: Run) -> None:
    Path(run.out_dir).mkdir(parents=True)
    (Path(run.out_dir) / "log.txt").write_bytes(LINES.encode()[:30])
    FolderStore().pump(run, MemoryBox({layout.LOG: LINES.encode()}))
    assert files_in(run.out_dir)["log.txt"] == LINES.encode()


def test_a_log_of_many_megabytes_is_pumped_in_bounded_parts(run: Run) -> None:
    log = b"x" * 99 + b"\n"
    box = MemoryBox({layout.LOG: log * 200_000})
    output_store = FolderStore()
    sizes = []
    while text := output_store.pump(run, box):
        sizes.append(len(text))
    assert sum(sizes) == 20_000_000
    assert max(sizes) <= 8 << 20


def test_a_line_without_an_end_is_collected_when_the_run_is_over(run: Run) -> None:
    box = box_with({})
    box.files[layout.LOG] = b"1.0 rank0 Segmentation fau"
    assert FolderStore().pump(run, box) == ""
    FolderStore().collect(run, box)
    assert files_in(run.out_dir)["log.txt"] == b"1.0 rank0 Segmentation fau"


def test_everything_the_manifest_names_comes_home(run: Run) -> None:
    weights = os.urandom(3_000_000)
    box = box_with(
        {
            layout.OUTCOME: OUTCOME.to_json().encode(),
            layout.STEPS: b'{"step": "10-check-gpu", "exit_code": 0}\n',
            "run/checkpoints/step-000010/model.pt": weights,
            "run/outputs/empty": b"",
            "code/results/a.npz": b"abc",
        }
    )
    collected = FolderStore().collect(run, box)
    home = files_in(run.out_dir)
    assert home["checkpoints/step-000010/model.pt"] == weights
    assert home["outputs/results/a.npz"] == b"abc"
    assert home["outputs/empty"] == b""
    assert home["log.txt"] == LINES.encode()
    assert home["details/lease.log"] == b"armed\n"
    steps = (StepEnd(step="10-check-gpu", exit_code=0, seconds=0.0),)
    assert collected.evidence == Evidence(outcome=OUTCOME, steps=steps, exit_code=0, damaged=())
    assert collected.files == len(home)
    assert collected.bytes == sum(map(len, home.values()))


@pytest.mark.parametrize(
    "other",
    ["run/outputs/LOSS.txt", "code/Loss.txt", "run/outputs/los\N{LATIN SMALL LETTER LONG S}.txt"],
)
def test_on_a_disk_that_ignores_case_no_file_is_written_over_another(run: Run, other: str) -> None:
    box = box_with(
        {
            "run/outputs/loss.txt": b"first",
            other: b"second",
            "run/outputs/loss.txt.1": b"third",
            "run/stacks/a": b"own",
            "run/Stacks/A": b"other",
        }
    )
    collected = FolderStore(lambda _: True).collect(run, box)
    assert collected.evidence.damaged == ()
    home = files_in(run.out_dir)
    assert collected.renamed == {other: f"outputs/{Path(other).name}.2", "run/Stacks/A": "details/Stacks/A.1"}
    assert [home[name] for name in collected.renamed.values()] == [b"second", b"other"]
    assert home["outputs/loss.txt"] == b"first"
    assert home["outputs/loss.txt.1"] == b"third"
    assert len({name.casefold() for name in home}) == len(home)
    assert FolderStore(lambda _: True).collect(run, box) == collected


def test_on_a_disk_that_minds_case_names_stay(run: Run) -> None:
    files = {"run/outputs/loss.txt": b"first", "run/outputs/LOSS.txt": b"second"}
    assert FolderStore(lambda _: False).collect(run, box_with(files)).renamed == {}
    assert files_in(run.out_dir)["outputs/LOSS.txt"] == b"second"


def test_files_from_the_code_and_from_the_outputs_lie_side_by_side_whatever_their_names(run: Run) -> None:
    files = {"code/a": b"1", "run/outputs/a": b"2", "code/b": b"3", "run/outputs/b/c": b"4", "code/b-d": b"5"}
    collected = FolderStore(lambda _: False).collect(run, box_with(files))
    assert collected.evidence.damaged == ()
    assert collected.renamed == {"run/outputs/a": "outputs/a.1", "code/b": "outputs/b.1"}
    home = files_in(run.out_dir)
    places = ("outputs/a", "outputs/a.1", "outputs/b.1", "outputs/b/c", "outputs/b-d")
    assert [home[place] for place in places] == [b"1", b"2", b"3", b"4", b"5"]


def test_no_file_of_a_box_lies_on_top_but_what_belongs_there(run: Run) -> None:
    names = ("README.md", "loss.svg", "result.json", "log.txt", ".vastrun.part", "details/x", "outputs/x")
    FolderStore().collect(run, box_with({f"{at}{n}": b"x" for at in ("", "run/", "code/") for n in names}))
    top = {name for name in files_in(run.out_dir) if "/" not in name}
    assert top == {"log.txt"}
    assert files_in(run.out_dir)["log.txt"] == LINES.encode()


def test_a_folder_that_an_older_vastrun_filled_is_filled_on_in_its_own_way(run: Run) -> None:
    out = Path(run.out_dir)
    out.mkdir(parents=True)
    (out / "run.log").write_bytes(LINES.encode()[:19])
    (out / "outputs").mkdir()
    (out / "outputs" / "a").write_bytes(b"abc")
    box = box_with({"run/outputs/a": b"abc", "run/RUN.log": b"own", "code/b": b"b", layout.FINAL: b"{}"})
    collected = FolderStore(lambda _: True).collect(run, box)
    assert collected.evidence.damaged == ()
    assert "run/outputs/a" not in box.asked
    assert collected.renamed == {"run/RUN.log": "RUN.log.1"}
    home = files_in(run.out_dir)
    assert set(home) == {
        *("run.log", "RUN.log.1", "outputs/a", "code/b", "final.json", "exit", "lease.log", "manifest.json")
    }
    assert home["run.log"] == LINES.encode()


def test_whether_a_disk_ignores_case_is_found_out_on_the_disk(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    one_name = (tmp_path / "A").exists()
    files = {"run/outputs/loss.txt": b"first", "run/outputs/LOSS.txt": b"second"}
    assert bool(FolderStore().collect(run, box_with(files)).renamed) == one_name


def test_a_second_collection_reads_no_checked_file_again(run: Run) -> None:
    box = box_with({"run/outputs/a": b"a" * 100})
    first = FolderStore().collect(run, box)
    box.asked.clear()
    assert FolderStore().collect(run, box) == first
    assert "run/outputs/a" not in box.asked


def test_a_collection_that_was_cut_off_goes_on_where_it_was(run: Run) -> None:
    content = os.urandom(4 << 20)
    box = box_with({"run/outputs/a": content})
    box.reads_left = 3
    with pytest.raises(UnreachableError):
        FolderStore().collect(run, box)
    box.reads_left = 10**9
    assert FolderStore().collect(run, box).evidence.damaged == ()
    assert box.asked.count("run/outputs/a") == 4
    assert files_in(run.out_dir)["outputs/a"] == content


def test_a_file_damaged_on_the_way_is_asked_for_again(run: Run) -> None:
    box = box_with({"run/outputs/a": b"abc"})
    box.flips = {"run/outputs/a"}
    assert FolderStore().collect(run, box).evidence.damaged == ()
    assert files_in(run.out_dir)["outputs/a"] == b"abc"


@pytest.mark.parametrize("content", [b"abX", b"ab", b""])
def test_a_file_that_is_not_as_its_manifest_says_is_damaged_and_left_out(run: Run, content: bytes) -> None:
    box = box_with({"run/outputs/a": content, "run/outputs/b": b"b"}, manifest={"run/outputs/a": b"abc"})
    assert FolderStore().collect(run, box).evidence.damaged == ("run/outputs/a",)
    home = files_in(run.out_dir)
    assert "outputs/a" not in home
    assert not any(".incoming" in path for path in home)


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/vastrun-stranger",
        "../stranger",
        "run/../../stranger",
        "run//../../stranger",
        "run",
        "",
        "a\0b",
        "x" * 300,
        "\ud800",
        "link/stranger",
    ],
)
def test_a_path_that_no_honest_box_writes_is_refused(run: Run, path: str) -> None:
    out = Path(run.out_dir)
    (out / "outputs").mkdir(parents=True)
    (out / "outputs" / "link").symlink_to(out.parent)
    box = box_with({path: b"evil", "run/outputs/a": b"abc"})
    before = set(out.parent.rglob("*"))
    assert len(FolderStore().collect(run, box).evidence.damaged) == 1
    assert files_in(run.out_dir)["outputs/a"] == b"abc"
    assert not [p for p in set(out.parent.rglob("*")) - before if p.is_file() and p.read_bytes() == b"evil"]


def test_a_path_with_a_doubled_slash_stays_inside(run: Run, tmp_path: Path) -> None:
    FolderStore().collect(run, box_with({f"run/{tmp_path}/stranger": b"evil"}))
    assert not (tmp_path / "stranger").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", "run/manifest.json: not JSON"),
        (b"[]", "run/manifest.json: files: expected a list"),
        (b'{"files": [{"path": 1, "size": 1, "sha256": ""}]}', "path: expected the name of a file, not 1"),
        (b'{"files": [3]}', "expected an object, not 3"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_damaged_and_it_is_said_why(
    run: Run, text: bytes, why: str
) -> None:
    box = box_with({})
    box.files[layout.MANIFEST] = text
    collected = FolderStore().collect(run, box)
    (damaged,) = collected.evidence.damaged or ()
    assert damaged.startswith(why)
    assert collected.evidence.exit_code == 0


def test_a_box_that_died_early_still_gives_its_logs(run: Run) -> None:
    box = MemoryBox({layout.LOG: LINES.encode(), layout.LEASE_LOG: b"run.sh died\n", layout.STATUS: b"{}"})
    collected = FolderStore().collect(run, box)
    assert collected.evidence == Evidence(outcome=None, damaged=())
    assert sorted(files_in(run.out_dir)) == ["details/lease.log", "details/status.json", "log.txt"]


def test_a_folder_that_takes_no_files_is_told_before_anything_is_rented(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write to .*file/run: Not a directory") as caught:
        FolderStore().check(run_in(tmp_path / "file" / "run"))
    assert "--out" in caught.value.hint


def test_a_folder_of_outputs_keeps_itself_out_of_git(run: Run) -> None:
    FolderStore().check(run)
    FolderStore().check(run)
    assert files_in(run.out_dir) == {".gitignore": b"*\n", ".vastrun": b"calm-heron-3f1a\n"}


@pytest.mark.parametrize("name", ["notes", ".gitignore", "checkpoints/step-000005/weights"])
def test_a_folder_with_files_of_the_user_is_refused_and_stays_as_it_is(run: Run, name: str) -> None:
    place = Path(run.out_dir) / name
    place.parent.mkdir(parents=True)
    place.write_text("mine")
    with pytest.raises(UsageError, match="is not empty") as refused:
        FolderStore().check(run)
    assert "--out" in refused.value.hint
    assert files_in(run.out_dir) == {name: b"mine"}


def test_a_folder_with_the_outputs_of_another_run_is_refused_unless_it_has_none(run: Run) -> None:
    FolderStore().check(run)
    FolderStore().check(replace(run, id="quick-tern-1b02"))
    (Path(run.out_dir) / "log.txt").write_text("of quick-tern")
    FolderStore().check(replace(run, id="quick-tern-1b02"))
    with pytest.raises(UsageError, match="holds the outputs of quick-tern-1b02"):
        FolderStore().check(run)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    parts.require("disks")
    with disks.small_disk(tmp_path / "disk", "56m") as disk:
        yield disk


def test_a_disk_that_is_nearly_full_is_told_before_anything_is_rented(tiny_disk: Path) -> None:
    (tiny_disk / "filler").write_bytes(bytes(10 << 20))
    with pytest.raises(StorageError, match="MB free, and 50 MB are needed"):
        FolderStore().check(run_in(tiny_disk / "run"))


def test_outputs_too_large_for_the_disk_are_refused_whole_and_come_when_there_is_room(
    tiny_disk: Path,
) -> None:
    filler = tiny_disk / "filler"
    filler.write_bytes(bytes(6 << 20))
    run = run_in(tiny_disk / "run")
    box = box_with({"run/outputs/a": bytes(3 << 20)})
    with pytest.raises(StorageError, match="MB are needed"):
        FolderStore().collect(run, box)
    filler.unlink()
    assert FolderStore().collect(run, box).evidence.damaged == ()


def test_a_log_that_fills_the_disk_loses_no_byte(tiny_disk: Path) -> None:
    filler = tiny_disk / "filler"
    filler.write_bytes(bytes(50 << 20))
    run, log = run_in(tiny_disk / "run"), os.urandom(7 << 20).replace(b"\n", b"x") + b"\n"
    box = MemoryBox({layout.LOG: log})
    with pytest.raises(NoRoomError, match="MB are needed"):
        pump_all(run, box)
    filler.unlink()
    pump_all(run, box)
    assert files_in(run.out_dir)["log.txt"] == log


def test_an_index_that_the_disk_does_not_take_leaves_the_one_before(tiny_disk: Path) -> None:
    run, page = run_in(tiny_disk / "run"), "x" * 9
    output_store = FolderStore(index=lambda _run, _contents, _now: {"README.md": page})
    output_store.collect(run, box_with({}))
    output_store.describe(run, 0.0)
    page = "y" * (9 << 20)
    with pytest.raises(NoRoomError, match="MB are needed"):
        output_store.describe(run, 0.0)
    assert files_in(run.out_dir)["README.md"] == b"x" * 9
    assert not list((tiny_disk / "run").glob(".README*"))


def pump_all(run: Run, box: MemoryBox) -> None:
    while FolderStore().pump(run, box):
        pass


def collect_with_files_capped(folder: Path) -> None:
    """Runs in a process of its own: no file may grow beyond 1 MB."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    try:
        FolderStore().collect(run_in(folder), box_with({"run/outputs/a": bytes(3 << 20)}))
    except StorageError as error:
        (folder / "said").write_text(str(error))


def test_a_write_that_fails_half_way_is_one_clear_error_and_can_be_taken_up(tmp_path: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=collect_with_files_capped, args=(tmp_path,))
    child.start()
    child.join(30)
    assert (tmp_path / "said").read_text() == f"cannot write to {tmp_path}: File too large"
    box = box_with({"run/outputs/a": bytes(3 << 20)})
    assert FolderStore().collect(run_in(tmp_path), box).evidence.damaged == ()
    assert box.asked.count("run/outputs/a") == 2
    assert files_in(str(tmp_path))["outputs/a"] == bytes(3 << 20)
