"""Where files of a box come to lie here: none over another, none where a file of ours belongs."""

from pathlib import Path

import pytest

from tests.launcher.outputs.boxes import LINES, box_with, files_in
from vastrun.launcher.core import Run
from vastrun.launcher.outputs.store import FolderStore


@pytest.mark.parametrize(
    "other", ["run/outputs/LOSS.txt", "code/Loss.txt", "run/outputs/los\N{LATIN SMALL LETTER LONG S}.txt"]
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
    local_paths = ("outputs/a", "outputs/a.1", "outputs/b.1", "outputs/b/c", "outputs/b-d")
    assert [home[place] for place in local_paths] == [b"1", b"2", b"3", b"4", b"5"]


def test_no_file_of_a_box_lies_on_top_but_what_belongs_there(run: Run) -> None:
    names = ("README.md", "report.html", "result.json", "log.txt", ".vastrun.part", "details/x", "outputs/x")
    FolderStore().collect(run, box_with({f"{at}{n}": b"x" for at in ("", "run/", "code/") for n in names}))
    top = {name for name in files_in(run.out_dir) if "/" not in name}
    assert top == {"log.txt"}
    assert files_in(run.out_dir)["log.txt"] == LINES.encode()


def test_whether_a_disk_ignores_case_is_found_out_on_the_disk(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    one_name = (tmp_path / "A").exists()
    files = {"run/outputs/loss.txt": b"first", "run/outputs/LOSS.txt": b"second"}
    assert bool(FolderStore().collect(run, box_with(files)).renamed) == one_name
