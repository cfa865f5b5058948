"""The folder of a run: a file that grows, and what of the program is not there."""

import json
from pathlib import Path

import pytest

from tests.launcher.outputs.boxes import run_in
from vastrun.contract import layout
from vastrun.launcher.outputs.folder import CHUNK, GrowingFile, Outputs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.log"


def test_only_whole_lines_are_read_and_each_once(path: Path) -> None:
    file = GrowingFile(path)
    assert file.more() == ""
    path.write_text("one\ntw")
    assert file.more() == "one\n"
    assert file.more() == ""
    path.write_text("one\ntwo\n")
    assert file.more() == "two\n"


def test_it_may_start_at_the_last_lines(path: Path) -> None:
    path.write_text("".join(f"{n}\n" for n in range(10)))
    assert GrowingFile(path, last_lines=2).more() == "8\n9\n"
    assert GrowingFile(path, last_lines=0).more() == ""
    assert GrowingFile(path, last_lines=99).more().startswith("0\n")


def test_the_newest_metrics_are_those_of_the_last_line(tmp_path: Path) -> None:
    outputs = Outputs(run_in(tmp_path))
    assert outputs.newest_metrics() == {}
    outputs.path(layout.METRICS).write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 1.5}\n')
    assert outputs.newest_metrics() == {"step": 2.0, "loss": 1.5}


def test_a_line_without_an_end_does_not_stop_it(path: Path) -> None:
    path.write_text("x" * (CHUNK + 1) + "\nlast\n")
    file = GrowingFile(path)
    assert len(file.more()) == CHUNK
    assert file.more() == "x\nlast\n"


def test_bytes_that_are_no_text_are_replaced(path: Path) -> None:
    path.write_bytes(b"\xff\n")
    assert GrowingFile(path).more() == "\ufffd\n"


def test_a_file_that_was_downloaded_later_is_no_longer_left_out(tmp_path: Path) -> None:
    outputs = Outputs(run_in(tmp_path))
    assert outputs.left_out().count == 0
    manifest = outputs.path(layout.MANIFEST)
    manifest.parent.mkdir()
    paths = ("code/w/a.pt", "code/w/b.pt", "../../a.pt", "/w/a.pt")
    told = [{"path": path, "why": "x", "size": 3} for path in paths]
    manifest.write_text(
        json.dumps({"files": [], "left_out": told, "left_out_count": 9, "left_out_bytes": 99})
    )
    (tmp_path / "outputs" / "w").mkdir(parents=True)
    (tmp_path / "outputs" / "w" / "a.pt").write_bytes(b"abc")
    (tmp_path / "outputs" / "w" / "b.pt").write_bytes(b"ab")
    left_out = outputs.left_out()
    assert [file.path for file in left_out.files] == list(paths[1:])
    assert (left_out.count, left_out.bytes) == (8, 96)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"left_out": 3}'])
def test_of_a_manifest_that_is_none_nothing_is_left_out(tmp_path: Path, content: str) -> None:
    outputs = Outputs(run_in(tmp_path))
    outputs.path(layout.MANIFEST).parent.mkdir()
    outputs.path(layout.MANIFEST).write_text(content)
    assert outputs.left_out().count == 0
