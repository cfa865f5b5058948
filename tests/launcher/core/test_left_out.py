"""Left-out files in words: a warning where something is missing that was asked for, or hard to make again."""

import pytest

from vastrun.launcher.core import LeftOutFile, LeftOutFiles
from vastrun.launcher.core.left_out import bytes_text, left_out_text
from vastrun.launcher.ui.render.amounts import left_out_lines

LOG = LeftOutFile(path="code/debug.log", why="not named in outputs", size=2_500, named=False)
WEIGHTS = LeftOutFile(path="code/w.PT", why="not named in outputs", size=1_600_000_000, named=False)


def test_an_unnamed_file_is_told_without_a_warning() -> None:
    left_out = LeftOutFiles(files=(LOG,), count=1, bytes=2_500)
    assert (
        left_out_text(left_out) == "1 not downloaded (2.5 kB): code/debug.log (2.5 kB, not named in outputs)"
    )


@pytest.mark.parametrize("file", [WEIGHTS, LeftOutFile(path="run/outputs/x", why="a broken link")])
def test_weights_and_missing_outputs_are_a_warning(file: LeftOutFile) -> None:
    assert left_out_text(LeftOutFiles(files=(file,), count=1, bytes=file.size)).startswith("WARNING: 1 not")


def test_nothing_is_said_of_nothing() -> None:
    assert (left_out_text(LeftOutFiles()), left_out_lines(LeftOutFiles())) == ("", "")


def test_a_list_shows_twenty_files_and_counts_the_rest() -> None:
    lines = left_out_lines(LeftOutFiles(files=(WEIGHTS, *(LOG,) * 99), count=7_000, bytes=10**12)).split("\n")
    assert lines[0] == "7,000 files, 1.0 TB, not downloaded"
    assert lines[1] == "1.6 GB  code/w.PT (not named in outputs)"
    assert (len(lines), lines[-1].strip()) == (22, "and 6980 more")


@pytest.mark.parametrize(
    ("path", "size", "is_weights"),
    [
        ("code/w.safetensors", 1_000_000, True),
        ("code/w.pt", 999_999, False),
        ("code/model.pt.log", 10**9, False),
        ("code/checkpoints/step_5/optimizer.BIN", 10**9, True),
    ],
)
def test_weights_are_known_by_name_and_size(path: str, size: int, is_weights: bool) -> None:
    assert LeftOutFile(path=path, why="", size=size).is_weights is is_weights


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (999_600, "1.0 MB"), (5 * 10**9, "5.0 GB")]
)
def test_bytes_are_written_in_decimal_units(size: int, text: str) -> None:
    assert bytes_text(size) == text
