"""One download: continued where it can be, and given up with the name of who is to blame."""

import hashlib
import socket
from pathlib import Path

import pytest

from tests.disks import may_be_made, small_disk
from tests.onstart.transfer.downloads import CONTENT, MEGABYTE, described, download, failure
from tests.onstart.transfer.file_server import FileServer, serving
from vastrun.onstart.transfer.sources import HttpSource


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
def test_server_that_cannot_continue_sends_it_all_again(how: str, server: FileServer, tmp_path: Path) -> None:
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
    assert failure(described(server.url), tmp_path) == (blame, f"set/file.bin: 127.0.0.1 {text}")


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/x", "file:///etc/passwd", "data:,x", "gopher://x/"])
def test_redirect_to_another_scheme_is_not_followed(target: str, server: FileServer, tmp_path: Path) -> None:
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
    said = f"set/file.bin: the file has {len(CONTENT)} bytes, and the job file says size: {size}"
    assert failure(described(server.url, size=size, max_bytes=size), tmp_path) == ("job", said)


def test_a_server_that_sends_for_ever_is_left_at_the_size(server: FileServer, tmp_path: Path) -> None:
    server.endless = True
    blame, said = failure(described(server.url, size=None, max_bytes=3 * MEGABYTE), tmp_path)
    assert (blame, said) == ("job", "set/file.bin: the file is larger than at most 3145728 (max_gb)")
    assert not (tmp_path / "part").exists()


def test_a_server_that_sends_too_slowly_is_left(server: FileServer, tmp_path: Path) -> None:
    hours = iter(range(0, 10**6, 3600))
    blame, said = failure(described(server.url), tmp_path, now=lambda: float(next(hours)))
    assert blame == "server"
    assert "sends too slowly" in said


def test_a_server_that_always_cuts_early_is_given_up(server: FileServer, tmp_path: Path) -> None:
    server.cut_after = [1000] * 100
    said = "set/file.bin: 127.0.0.1 closed the connection early, 6 times in a row"
    assert failure(described(server.url), tmp_path) == ("server", said)


def test_a_file_whose_first_part_never_matches_is_given_up(server: FileServer, tmp_path: Path) -> None:
    server.cut_after = [2 * MEGABYTE, 10 * MEGABYTE] * 100
    blame, said = failure(described(server.url, sha256="0" * 64), tmp_path)
    assert (blame, said) == ("server", "set/file.bin: its parts do not match the checksum")
    assert len(server.paths) < 20


def test_server_that_sends_little_between_long_pauses_is_given_up(server: FileServer, tmp_path: Path) -> None:
    server.statuses, server.headers = ([503] * 5 + [200]) * 100, {"Retry-After": "120"}
    server.cut_after = [MEGABYTE + 1000] * 100
    server.content, passed = CONTENT * 3, [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    file = described(server.url, server.content)
    assert failure(file, tmp_path, sleep=sleep, now=lambda: passed[0])[0] == "server"
    assert passed[0] < 4500


def test_a_server_that_does_not_respond_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file.bin"
        blame, said = failure(described(url), tmp_path, source=HttpSource(url, timeout_s=0.05))
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
    said = "set/file.bin: connection to 127.0.0.1 failed: Connection refused, 6 times in a row"
    assert failure(described(url), tmp_path) == ("server", said)


def test_an_unknown_name_is_the_jobs_fault_or_that_of_a_machine_without_name_servers(tmp_path: Path) -> None:
    blame, said = failure(described("http://no-such-name.invalid/file.bin"), tmp_path)
    assert (blame, said) in (
        ("job", "set/file.bin: there is no server named no-such-name.invalid"),
        ("host", f"set/file.bin: {said.partition(': ')[2]}"),
    )


def test_a_file_that_does_not_fit_is_told_before_the_first_byte(server: FileServer, tmp_path: Path) -> None:
    size = 10**15
    server.headers = {"Content-Length": str(size)}
    blame, said = failure(described(server.url, size=size, max_bytes=size), tmp_path)
    assert blame == "disk"
    assert said.startswith("set/file.bin: 1000000.00 GB more are needed, and the disk has ")
