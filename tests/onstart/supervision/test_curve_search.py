"""Where a program's curves are looked for, and which of the files are those of rank 0 since its start."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from vastrun.contract import layout
from vastrun.onstart.supervision.curve_formats import TensorBoardFile, WandbFile
from vastrun.onstart.supervision.logged_curves import CurveSearch, wandb_files
from vastrun.onstart.supervision.rank_process import RankProcess

EVENTS = "events.out.tfevents.1700000000.host"


def write(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def found(search: CurveSearch) -> list[str]:
    return [file.path.name for file in search.all_files()]


@pytest.fixture
def box(tmp_path: Path) -> Path:
    (tmp_path / layout.CODE).mkdir()
    for rank, pid in ((0, 2_000_000_010), (1, 2_000_000_011), (2, 811)):
        process = RankProcess(rank=rank, pid=pid, started_at=1.0)
        record = tmp_path / layout.RANKS / f"rank-{rank}.process.json"
        write(record, json.dumps(asdict(process)).encode())
    return tmp_path


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        (EVENTS, True),
        (f"{EVENTS}.7.0", True),
        (f"{EVENTS}.7.0.v2", True),
        ("events.out.tfevents.x.host", False),
        ("events.out.tfevents.1700000000.", False),
        ("run-abc_1.wandb", True),
        ("run-.wandb", False),
        ("run-a b.wandb", False),
        ("run-abc.wandb.synced", False),
        ("metrics.jsonl", False),
    ],
)
def test_a_curve_file_is_known_by_its_name(box: Path, name: str, is_one: bool) -> None:
    path = write(box / layout.CODE / "logs" / name)
    assert CurveSearch(box).files_below_folders() == ([path] if is_one else [])


def test_curves_are_searched_in_code_and_outputs_and_not_in_caches_or_links(box: Path) -> None:
    code, outputs = box / layout.CODE, box / layout.OUTPUTS
    wanted = {write(code / "a" / "b" / EVENTS), write(code / EVENTS), write(outputs / "x" / EVENTS)}
    for folder in (".git", "__pycache__", "node_modules"):
        write(code / folder / EVENTS)
    write(box / "elsewhere" / EVENTS)
    (code / "link").symlink_to(box / "elsewhere")
    (code / f"{EVENTS}.link").symlink_to(code / EVENTS)
    # A folder of the code may have the name of one of the box's.
    wanted.add(write(code / Path(layout.RUN).parts[0] / EVENTS))
    assert set(CurveSearch(box).files_below_folders()) == wanted
    assert wandb_files(box) == []


def test_without_code_the_folders_of_the_box_itself_are_skipped(box: Path) -> None:
    (box / layout.CODE).rmdir()
    mine = write(box / "mine" / "run-b.wandb")
    output = write(box / layout.OUTPUTS / "run-a.wandb")
    for name in (layout.PACKAGES, layout.DATA, layout.SLOTS):
        write(box / name / "run-x.wandb")
    assert set(CurveSearch(box).files_below_folders()) == {mine, output}
    own = write(box / layout.WANDB_FILES / "offline-run" / "run-c.wandb")
    write(box / "mine" / EVENTS)
    assert wandb_files(box) == sorted([mine, output, own])


def test_a_file_of_before_counts_from_where_it_ended_and_once(box: Path) -> None:
    code, search = box / layout.CODE, CurveSearch(box)
    old, grown = write(code / f"{EVENTS}.1"), write(code / f"{EVENTS}.2", b"12345")
    search.begin()
    write(code / "run-new.wandb")
    write(code / "run-empty.wandb", b"")
    grown.write_bytes(b"123456789")
    files = list(search.all_files())
    assert [(type(file), file.path.name, file.offset) for file in files] == [
        (TensorBoardFile, grown.name, 5),
        (WandbFile, "run-new.wandb", 0),
    ]
    assert found(search) == []
    old.write_bytes(b"12")
    assert found(search) == [old.name]
    search.begin()
    assert found(search) == []


@pytest.mark.parametrize(
    ("suffix", "is_of_rank_0"),
    [
        ("", True),
        (".811.0", False),
        (".811.0.v2", False),
        (".811", True),
        (".812.0", True),
        (".2000000010.0", True),
        # A number of ten digits is no process id, whatever the records say.
        (".2000000011.0", True),
        (".000000811.0", False),
        (".0000000811.0", True),
    ],
)
def test_another_ranks_file_is_known_by_the_process_in_it(box: Path, suffix: str, is_of_rank_0: bool) -> None:
    write(box / layout.CODE / f"{EVENTS}{suffix}")
    assert found(CurveSearch(box)) == ([f"{EVENTS}{suffix}"] if is_of_rank_0 else [])


def test_sixty_four_files_of_one_start_are_read_at_most(box: Path) -> None:
    search = CurveSearch(box)
    for number in range(66):
        write(box / layout.CODE / f"run-{number:03}.wandb")
    assert found(search) == [f"run-{number:03}.wandb" for number in range(64)]
    assert found(search) == []
    search.begin()
    for number in range(66):
        write(box / layout.CODE / f"run-{number:03}.wandb", b"more")
    assert len(found(search)) == 64


def test_a_file_that_a_process_of_this_run_has_open_is_found_wherever_it_is(box: Path) -> None:
    search, path = CurveSearch(box), write(box / "elsewhere" / "run-a.wandb")
    with path.open("ab"):
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), 19)  # it stays until it is killed
            os._exit(0)
        try:
            os.waitpid(child, os.WUNTRACED)
            assert [file.path for file in search.open_files()] == [path]
            assert list(search.open_files()) == []
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
    assert list(CurveSearch(box).open_files()) == []
