"""The files of `data:` are in the data folder before the ranks start, or the step says whose fault it is."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.onstart.transfer.downloads import CONTENT, MEGABYTE, as_json, described, download, step
from tests.onstart.transfer.file_server import FileServer
from vastrun.contract.data_files import EXIT_OF_BLAME
from vastrun.onstart.transfer.data_files import provide, source_of
from vastrun.onstart.transfer.sources import DataFileError


def test_a_file_is_downloaded_and_the_next_run_there_compares_it(server: FileServer, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", "", ".hidden", "a\\b"])
def test_path_that_leaves_the_folder_is_the_jobs_fault(path: str, server: FileServer, tmp_path: Path) -> None:
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


def test_a_hub_file_has_its_address_and_its_token(server: FileServer, tmp_path: Path) -> None:
    other = server.url.replace("127.0.0.1", "localhost")
    environ = {"HF_ENDPOINT": server.url.rpartition("/")[0], "HF_TOKEN": "hf_secret"}
    file = described("hf://datasets/owner/name@refs%2Fpr%2F1/a folder/file.bin")
    server.statuses, server.headers = [302], {"Location": other}  # as the hub redirects to its storage
    download(file, tmp_path, source=source_of(file, environ))
    assert server.paths == ["/datasets/owner/name/resolve/refs%2Fpr%2F1/a%20folder/file.bin", "/file.bin"]
    assert server.tokens == ["Bearer hf_secret", ""], "another server must not get the token"


def test_a_renamed_hub_file_keeps_its_token(server: FileServer, tmp_path: Path) -> None:
    environ = {"HF_ENDPOINT": server.url.rpartition("/")[0], "HF_TOKEN": "hf_secret"}
    file = described("hf://owner/model/file.bin")
    server.statuses, server.headers = [307], {"Location": "/new-owner/model/resolve/main/file.bin"}
    download(file, tmp_path, source=source_of(file, environ))
    assert server.paths[0] == "/owner/model/resolve/main/file.bin"
    assert server.tokens == ["Bearer hf_secret"] * 2


def test_a_private_hub_file_without_a_token_says_what_to_do(server: FileServer, tmp_path: Path) -> None:
    server.statuses = [401]
    endpoint = server.url.rpartition("/")[0]
    file = described("hf://datasets/owner/name/file.bin")
    code, lines = step(tmp_path, [as_json(file)], HF_ENDPOINT=endpoint, HF_TOKEN="")
    assert code == EXIT_OF_BLAME["job"]
    advice = "a private file needs secrets: [HF_TOKEN] in the job file"
    assert lines[-1] == f"set/file.bin: 127.0.0.1 refuses access (HTTP 401); {advice}"


def test_a_file_comes_from_a_bucket_and_is_continued(bucket: Any, tmp_path: Path) -> None:
    bucket.put_object(Bucket="models", Key="set/file.bin", Body=CONTENT)
    file = described("s3://models/set/file.bin")
    (tmp_path / "part").write_bytes(CONTENT[:MEGABYTE])
    digest = download(file, tmp_path, source=source_of(file, os.environ))
    assert digest == hashlib.sha256(CONTENT).hexdigest()
    assert (tmp_path / "part").read_bytes() == CONTENT


def test_a_bucket_without_the_file_is_the_jobs_fault(bucket: Any, tmp_path: Path) -> None:
    for name in ("models", "nowhere"):
        with pytest.raises(DataFileError, match=f"the bucket {name} has no such file") as raised:
            provide(described(f"s3://{name}/none.bin"), tmp_path, None, {})
        assert raised.value.blame == "job"
