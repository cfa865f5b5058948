"""A box's list of files: what it costs to read, however long its paths and its list are."""

import json
import time
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest

from vastrun.contract import layout
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.manifest import Listing, parse_manifest
from vastrun.onstart.transfer.manifest import MAX_FOLDERS

SHA256 = "0" * 64
MAX_CPU_S = 8.0
"""A quarter of it is usual; what grew with the square of the list took more than a minute."""


def entry(path: str, **changes: Any) -> dict[str, Any]:
    return {"path": path, "size": 0, "sha256": SHA256} | changes


def manifest(paths: Iterable[str]) -> bytes:
    return json.dumps({"files": [entry(path) for path in paths]}).encode()


def read_cheaply(content: bytes) -> Listing:
    """Read it with a limit on CPU time, then on memory, which is slow to count."""
    began = time.process_time()
    listing = parse_manifest(content)
    cpu_s = time.process_time() - began
    assert cpu_s < MAX_CPU_S, f"{cpu_s:.1f} s"
    return listing


def deep(number: int) -> str:
    """A path of as many folders as one may have."""
    return f"{number}{'/a' * (caps.PATH_FOLDERS - 1)}/x"


def memory_mb(content: bytes) -> float:
    """The least of three readings: a thread of another test may still be ending."""
    readings = []
    for _ in range(3):
        tracemalloc.start()
        parse_manifest(content)
        readings.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    return min(readings)


@pytest.mark.slow
def test_fifty_thousand_files_are_read_in_seconds() -> None:
    content = manifest(f"run/outputs/{number}" for number in range(caps.FILES))
    assert len(read_cheaply(content).files) == caps.FILES


@pytest.mark.slow
def test_the_longest_list_of_deep_paths_is_read_in_seconds() -> None:
    content = manifest(deep(number) for number in range(caps.FILES))
    assert len(content) <= caps.SMALL_FILES[layout.MANIFEST]
    assert len(read_cheaply(content).files) == caps.FILES


def test_no_folder_of_a_path_is_stored() -> None:
    content = manifest(deep(number) for number in range(3000))
    assert memory_mb(content) < 6


def test_paths_of_five_hundred_folders_are_refused_with_little_memory() -> None:
    content = manifest(f"{number}/{'a/' * 500}x" for number in range(1500))
    listing = read_cheaply(content)
    assert listing.files == ()
    assert listing.rejected[0] == f"a path of more than 64 folders: {('0/' + 'a/' * 30)[:60]!r}..."
    assert memory_mb(content) < 20


@pytest.mark.parametrize("parts", [caps.PATH_FOLDERS, caps.PATH_FOLDERS + 1])
def test_a_path_may_have_64_folders(parts: int) -> None:
    path = "/".join(["a"] * parts + ["file"])
    assert bool(parse_manifest(manifest([path])).files) is (parts == caps.PATH_FOLDERS)


def test_a_box_lists_no_path_that_the_launcher_refuses() -> None:
    assert MAX_FOLDERS == caps.PATH_FOLDERS


def test_what_is_listed_below_a_file_is_refused_whatever_comes_first() -> None:
    paths = ["a/b/c", "a/b", "a.b", "a-b/c", "b", "b/c/d", "b/c"]
    for order in (paths, paths[::-1]):
        listing = parse_manifest(manifest(order))
        assert sorted(file.path for file in listing.files) == ["a-b/c", "a.b", "a/b", "b"]
        assert sorted(listing.rejected) == [
            "'a/b/c' is listed below 'a/b', which is a file",
            "'b/c' is listed below 'b', which is a file",
            "'b/c/d' is listed below 'b', which is a file",
        ]


def test_of_a_path_that_is_listed_twice_the_first_counts() -> None:
    twice = json.dumps({"files": [entry("a", sha256="1" * 64), entry("./a", sha256="2" * 64)]}).encode()
    listing = parse_manifest(twice)
    assert [file.sha256 for file in listing.files] == ["1" * 64]
    assert listing.rejected == ("'a' is listed twice",)


@pytest.mark.parametrize(
    "path",
    ["run", "run/checkpoints", "run//checkpoints/.", "run/outputs", "run/report", "run/profile", "code"],
)
def test_a_file_at_the_place_of_a_folder_is_refused(path: str) -> None:
    assert parse_manifest(manifest([path])).rejected == (f"a folder, not a file: {path!r}",)


@pytest.mark.parametrize(
    "path", ["run/outcome.json/x", "run/run.log/x", "run/checkpoints/latest.json/x/y", "run/manifest.json/x"]
)
def test_a_file_below_the_place_of_a_file_is_refused(path: str) -> None:
    assert parse_manifest(manifest([path])).rejected == (f"below a path that is a file: {path!r}",)
