"""The files of `data:` are in the data folder before the ranks start, or the step says whose fault it is."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.disks import may_be_made, small_disk
from tests.trainer.transfer.file_server import FileServer, serving
from tests.waiting import LONGEST_S
from vastrun.contract import layout
from vastrun.contract.data_files import EXIT_OF_BLAME, JobDataFile
from vastrun.trainer.transfer.data_cache import DataCache
from vastrun.trainer.transfer.data_files import provide, source_of
from vastrun.trainer.transfer.download import FileDownload
from vastrun.trainer.transfer.download_error import DataFileError
from vastrun.trainer.transfer.sources import HttpSource

MEGABYTE = 1 << 20
CONTENT = bytes(range(256)) * (4 * MEGABYTE // 256) + b"the end"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(CONTENT) as state:
        yield state


def described(url: str, content: bytes = CONTENT, **changes: Any) -> JobDataFile:
    fields: dict[str, Any] = {
        "url": url,
        "path": "set/file.bin",
        "size": len(content),
        "max_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return JobDataFile(**{**fields, **changes})


def download(file: JobDataFile, folder: Path, *, timeout_s: float = 60.0) -> str:
    """Download without its pauses; return the digest."""
    source = HttpSource(file.url, timeout_s=timeout_s)
    return FileDownload(file, source, folder / "part", sleep=lambda _seconds: None).run()


def failure(file: JobDataFile, folder: Path, **options: Any) -> tuple[str, str]:
    """Who is to blame that the file cannot be downloaded, and why."""
    with pytest.raises(DataFileError) as raised:
        download(file, folder, **options)
    return raised.value.blame, str(raised.value)


def step(box: Path, files: list[dict[str, Any]], **environ: str) -> tuple[int, list[str]]:
    """Exit code and lines of the step."""
    (box / layout.DATA).mkdir(parents=True, exist_ok=True)
    job = {"run_id": "calm-heron-3f1a", "ranks": 1, "stall_s": 60, "start_s": 60, "data": files}
    (box / layout.JOB).write_text(json.dumps(job))
    done = subprocess.run(
        [sys.executable, "-m", "vastrun.trainer.transfer.data_files"],
        env={**os.environ, "VASTRUN_BOX": str(box), "VASTRUN_DATA": str(box / layout.DATA), **environ},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def as_json(file: JobDataFile) -> dict[str, Any]:
    return dict(vars(file))


def test_a_file_is_downloaded_and_the_next_run_on_that_disk_compares_it(
    server: FileServer, tmp_path: Path
) -> None:
    file = described(server.url)
    code, lines = step(tmp_path, [as_json(file)])
    assert code == 0
    assert lines[0] == "set/file.bin: downloading from 127.0.0.1"
    assert lines[-1].endswith("; sha256 matches")
    assert (tmp_path / "data/set/file.bin").read_bytes() == CONTENT
    assert step(tmp_path, [as_json(file)]) == (0, ["set/file.bin: already there, 4.2 MB; sha256 matches"])
    (tmp_path / "data/set/file.bin").write_bytes(CONTENT[:-1] + b"?")
    code, lines = step(tmp_path, [as_json(file)])
    assert (code, lines[0]) == (0, "set/file.bin: another file of this name is there; it is replaced")
    assert (tmp_path / "data/set/file.bin").read_bytes() == CONTENT
    assert len(server.ranges) == 2


def test_what_a_cut_leaves_is_continued(server: FileServer, tmp_path: Path) -> None:
    server.cut_after = [MEGABYTE, 2 * MEGABYTE]
    assert download(described(server.url), tmp_path) == hashlib.sha256(CONTENT).hexdigest()
    assert server.ranges == ["", f"bytes={MEGABYTE}-", f"bytes={3 * MEGABYTE}-"]
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_what_a_killed_run_left_is_continued(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(CONTENT[: 3 * MEGABYTE])
    download(described(server.url), tmp_path)
    assert server.ranges == [f"bytes={3 * MEGABYTE}-"]
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_without_a_checksum_what_a_killed_run_left_is_not_trusted(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"?" * MEGABYTE)
    assert download(described(server.url, sha256=None), tmp_path) == hashlib.sha256(CONTENT).hexdigest()
    assert server.ranges == [""]


@pytest.mark.parametrize("how", ["no ranges", "another version"])
def test_a_server_that_cannot_continue_sends_it_all_again(
    how: str, server: FileServer, tmp_path: Path
) -> None:
    server.cut_after = [MEGABYTE]
    server.resumes = how != "no ranges"
    server.etag = lambda request: f'"{request}"' if how == "another version" else '"1"'
    download(described(server.url), tmp_path)
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_parts_of_two_versions_are_downloaded_again(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"?" * MEGABYTE)
    download(described(server.url), tmp_path)
    assert server.ranges == [f"bytes={MEGABYTE}-", ""]
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_a_busy_server_is_asked_again(server: FileServer, tmp_path: Path) -> None:
    server.statuses = [503, 429, 500]
    download(described(server.url), tmp_path)
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_an_md5_sum_will_do_and_without_any_sum_the_sha256_is_printed(
    server: FileServer, tmp_path: Path
) -> None:
    md5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
    size = {"size": None, "max_bytes": 5 * MEGABYTE}
    first = described(server.url, sha256=None, md5=md5, path="a", **size)
    second = described(server.url, sha256=None, path="b", **size)
    code, lines = step(tmp_path, [as_json(first), as_json(second)])
    assert code == 0
    assert lines[1].endswith("; md5 matches")
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    assert lines[3].endswith(f"; not compared: the job file has no checksum (sha256: {sha256})")


def test_a_wrong_checksum_is_the_jobs_fault_and_leaves_no_file(server: FileServer, tmp_path: Path) -> None:
    file = described(f"{server.url}?signature=secret", sha256="0" * 64)
    code, lines = step(tmp_path, [as_json(file)])
    assert code == EXIT_OF_BLAME["job"]
    assert f"the job file says {'0' * 64}" in lines[-1]
    assert "secret" not in lines[-1]
    assert list((tmp_path / "data/set").iterdir()) == []


@pytest.mark.parametrize(
    ("status", "blame", "text"),
    [
        (404, "job", "has no such file (HTTP 404)"),
        (410, "job", "has no such file (HTTP 410)"),
        (401, "job", "refuses access (HTTP 401)"),
        (403, "job", "refuses access (HTTP 403)"),
        (400, "job", "rejects the request (HTTP 400)"),
        (503, "server", "responds with HTTP 503, 6 times in a row"),
        (304, "server", "redirects to an address that is not followed (HTTP 304)"),
        (204, "server", "responds with HTTP 204"),
    ],
)
def test_a_refusal_blames_the_job_or_the_server(
    status: int, blame: str, text: str, server: FileServer, tmp_path: Path
) -> None:
    server.statuses = [status] * 6
    found, said = failure(described(server.url), tmp_path)
    assert (found, said) == (blame, f"set/file.bin: 127.0.0.1 {text}")


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/x", "file:///etc/passwd", "data:,x", "gopher://x/"])
def test_a_redirect_to_another_scheme_is_not_followed(
    target: str, server: FileServer, tmp_path: Path
) -> None:
    server.statuses, server.headers = [302] * 6, {"Location": target}
    blame, said = failure(described(server.url), tmp_path)
    assert blame == "server"
    assert "redirects" in said and "not followed" in said


def test_redirects_have_an_end(server: FileServer, tmp_path: Path) -> None:
    server.statuses, server.headers = [307] * 100, {"Location": server.url}
    assert failure(described(server.url), tmp_path)[0] == "server"
    assert len(server.paths) < 20


@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) + 1])
def test_another_size_is_told_before_the_first_byte(size: int, server: FileServer, tmp_path: Path) -> None:
    blame, said = failure(described(server.url, size=size, max_bytes=size), tmp_path)
    assert blame == "job"
    assert said == f"set/file.bin: the file has {len(CONTENT)} bytes, and the job file says size: {size}"


def test_a_server_that_sends_for_ever_is_left_at_the_size(server: FileServer, tmp_path: Path) -> None:
    server.endless = True
    blame, said = failure(described(server.url, size=None, max_bytes=3 * MEGABYTE), tmp_path)
    assert (blame, said) == ("job", "set/file.bin: the file is larger than at most 3145728 (max_gb)")
    assert not (tmp_path / "part").exists()


def test_a_server_that_sends_too_slowly_is_left(server: FileServer, tmp_path: Path) -> None:
    hours = iter(range(0, 10**6, 3600))
    source = HttpSource(server.url)
    with pytest.raises(DataFileError, match="sends too slowly, 6 times in a row") as raised:
        FileDownload(
            described(server.url),
            source,
            tmp_path / "part",
            sleep=lambda _seconds: None,
            now=lambda: float(next(hours)),
        ).run()
    assert raised.value.blame == "server"


def test_a_server_that_always_cuts_early_is_given_up(server: FileServer, tmp_path: Path) -> None:
    server.cut_after = [1000] * 100
    blame, said = failure(described(server.url), tmp_path)
    assert (blame, said) == (
        "server",
        "set/file.bin: 127.0.0.1 closed the connection early, 6 times in a row",
    )


def test_a_server_that_does_not_respond_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file.bin"
        blame, said = failure(described(url), tmp_path, timeout_s=0.05)
    assert (blame, said) == ("server", "set/file.bin: 127.0.0.1 does not respond, 6 times in a row")


def test_a_disk_that_fills_up_meanwhile_is_no_fault_of_the_server(server: FileServer, tmp_path: Path) -> None:
    if not may_be_made():
        pytest.skip("this computer lets nobody mount a disk of their own")
    server.endless = True
    with small_disk(tmp_path / "disk", "60m") as disk:
        blame, said = failure(described(server.url, size=None, max_bytes=10**9), disk)
        assert list(disk.iterdir()) == []
    assert (blame, said) == ("disk", "set/file.bin: the disk is full")


def test_a_server_that_nobody_runs_is_the_servers_fault(tmp_path: Path) -> None:
    with serving() as gone:
        url = gone.url
    blame, said = failure(described(url), tmp_path)
    assert (blame, said) == (
        "server",
        "set/file.bin: connection to 127.0.0.1 failed: Connection refused, 6 times in a row",
    )


def test_a_name_that_does_not_exist_is_the_jobs_fault_or_that_of_a_machine_without_name_servers(
    tmp_path: Path,
) -> None:
    blame, said = failure(described("http://no-such-name.invalid/file.bin"), tmp_path)
    assert (blame, said) in (
        ("job", "set/file.bin: there is no server named no-such-name.invalid"),
        ("host", f"set/file.bin: {said.partition(': ')[2]}"),
    )


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", "", "latents/x", ".hidden", "a\\b"])
def test_a_path_that_leaves_the_folder_is_the_jobs_fault(
    path: str, server: FileServer, tmp_path: Path
) -> None:
    with pytest.raises(DataFileError, match=r"^data: path: ") as raised:
        provide(described(server.url, path=path), tmp_path, None, {})
    assert raised.value.blame == "job"
    assert server.paths == []


def test_a_link_that_an_earlier_run_left_is_not_followed(server: FileServer, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/set").symlink_to(outside)
    code, lines = step(tmp_path, [as_json(described(server.url))])
    assert (code, server.paths) == (EXIT_OF_BLAME["job"], [])
    assert lines == ["set/file.bin: in $VASTRUN_DATA it is a folder, or leads out of it"]
    assert list(outside.iterdir()) == []


def test_a_file_that_does_not_fit_is_told_before_the_first_byte(server: FileServer, tmp_path: Path) -> None:
    size = 10**15
    server.headers = {"Content-Length": str(size)}
    blame, said = failure(described(server.url, size=size, max_bytes=size), tmp_path)
    assert blame == "disk"
    assert said.startswith("set/file.bin: 1000000.00 GB more are needed, and the disk has ")


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


def test_a_run_that_was_killed_leaves_its_part_to_the_next_one_of_the_machine(
    server: FileServer, tmp_path: Path
) -> None:
    cache, file = DataCache(tmp_path / "shared"), described(server.url)
    with cache.entry(file) as cached:
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
        assert (code, lines[0]) == (
            0,
            "set/file.bin: the disk has no room for a copy in this machine's cache",
        )
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
    files = [described(f"http://x/{n}", sha256=None, size=None, max_bytes=n + 1) for n in range(3)]
    for number, file in enumerate(files):
        with cache.entry(file) as cached:
            cached.part.write_bytes(b"x")
            cached.keep("0" * 64)
            (digest,) = [path for path in tmp_path.rglob("digest") if path.stat().st_mtime > 1e9]
            os.utime(digest, (number + 1, number + 1))
    with cache.entry(files[1]):  # in use
        assert not cache.make_room(10**18)
    kept = [cached.exists for file in files for cached in [_entry(cache, file)]]
    assert kept == [False, True, False]


def _entry(cache: DataCache, file: JobDataFile) -> Any:
    with cache.entry(file) as cached:
        return cached


def test_a_hub_file_has_its_address_and_its_token(server: FileServer, tmp_path: Path) -> None:
    other = server.url.replace("127.0.0.1", "localhost")
    environ = {"HF_ENDPOINT": server.url.rpartition("/")[0], "HF_TOKEN": "hf_secret"}
    file = described("hf://datasets/owner/name@refs%2Fpr%2F1/a folder/file.bin")
    server.statuses, server.headers = [302], {"Location": other}  # as the hub redirects to its storage
    FileDownload(file, source_of(file, environ), tmp_path / "part", sleep=lambda _seconds: None).run()
    assert server.paths == ["/datasets/owner/name/resolve/refs%2Fpr%2F1/a%20folder/file.bin", "/file.bin"]
    assert server.tokens == ["Bearer hf_secret", ""], "another server must not get the token"


def test_a_renamed_hub_file_keeps_its_token(server: FileServer, tmp_path: Path) -> None:
    environ = {"HF_ENDPOINT": server.url.rpartition("/")[0], "HF_TOKEN": "hf_secret"}
    file = described("hf://owner/model/file.bin")
    server.statuses, server.headers = [307], {"Location": "/new-owner/model/resolve/main/file.bin"}
    FileDownload(file, source_of(file, environ), tmp_path / "part", sleep=lambda _seconds: None).run()
    assert server.paths[0] == "/owner/model/resolve/main/file.bin"
    assert server.tokens == ["Bearer hf_secret"] * 2


def test_a_private_hub_file_without_a_token_says_what_to_do(server: FileServer, tmp_path: Path) -> None:
    server.statuses = [401]
    endpoint = server.url.rpartition("/")[0]
    file = described("hf://datasets/owner/name/file.bin")
    code, lines = step(tmp_path, [as_json(file)], HF_ENDPOINT=endpoint, HF_TOKEN="")
    assert code == EXIT_OF_BLAME["job"]
    assert lines[-1] == (
        "set/file.bin: 127.0.0.1 refuses access (HTTP 401); a private file needs secrets: [HF_TOKEN] "
        "in the job file"
    )


def test_a_file_comes_from_a_bucket_and_is_continued(bucket: Any, tmp_path: Path) -> None:
    bucket.put_object(Bucket="models", Key="set/file.bin", Body=CONTENT)
    file = described("s3://models/set/file.bin")
    (tmp_path / "part").write_bytes(CONTENT[:MEGABYTE])
    source = source_of(file, os.environ)
    assert FileDownload(file, source, tmp_path / "part").run() == hashlib.sha256(CONTENT).hexdigest()
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_a_bucket_without_the_file_is_the_jobs_fault(bucket: Any, tmp_path: Path) -> None:
    for name in ("models", "nowhere"):
        with pytest.raises(DataFileError, match=f"the bucket {name} has no such file") as raised:
            provide(described(f"s3://{name}/none.bin"), tmp_path, None, {})
        assert raised.value.blame == "job"
