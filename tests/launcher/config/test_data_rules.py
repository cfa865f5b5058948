"""The files of `data:` are checked before a machine is rented, each fault at its place."""

import pytest

from tests.launcher.config.job_files import faults, load
from vastrun.launcher.core.job import DataFile

SHA256 = "0123456789abcdef" * 4
HEAD = "name: demo\ntrain:\nresources: {gpus: 0, disk_gb: 10}\ndata:\n"


def job(*entries: str) -> str:
    return HEAD + "".join(f"  - {entry}\n" for entry in entries)


def test_a_file_has_the_name_at_the_end_of_its_url_unless_it_gets_one() -> None:
    text = job(
        f"{{url: 'https://x.org/a%20b.h5?version=2', sha256: {SHA256}, size: 1000}}",
        f"{{url: 's3://bucket/key/c.h5', path: sets/d.h5, sha256: {SHA256}, max_gb: 2.5}}",
    )
    spec = load(text)
    assert [file.target for file in spec.data] == ["a b.h5", "sets/d.h5"]
    assert spec.data[0] == DataFile(url="https://x.org/a%20b.h5?version=2", sha256=SHA256, size=1000)
    assert spec.data_gb == pytest.approx(2.500001)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{url: 'ftp://x.org/a', size: 1}", "data[0].url: expected an https://, hf:// or s3:// URL"),
        ("{url: 'https:///a', size: 1}", "data[0].url: expected an https://, hf:// or s3:// URL"),
        ("{url: 'https://x:y/a', size: 1}", "data[0].url: expected an https://, hf:// or s3:// URL"),
        ("{url: 'https://me:secret@x.org/a', size: 1}", "data[0].url: expected a URL without a password"),
        ("{url: 'https://x.org/a b', size: 1}", "data[0].url: expected an https://, hf:// or s3:// URL"),
        ("{url: 'hf://name/file', size: 1}", "data[0].url: expected hf://datasets/OWNER/NAME@REVISION/PATH"),
        ("{url: 's3://bucket', size: 1}", "data[0].url: expected s3://BUCKET/KEY"),
        ("{url: 's3://bucket/a?x', size: 1}", "data[0].url: expected an https://, hf:// or s3:// URL"),
        ("{url: 'http://x.org/a', size: 1}", "data[0].url: http:// needs sha256 or md5"),
        ("{url: 'https://x.org/a'}", "data[0]: expected one of size (its exact number of bytes) and max_gb"),
        ("{url: 'https://x.org/a', size: 1, max_gb: 1}", "data[0]: expected one of size"),
        ("{url: 'https://x.org/a', size: 1, sha256: abc}", "data[0].sha256: expected 64 hexadecimal digits"),
        ("{url: 'https://x.org/a', size: 1, md5: '!'}", "data[0].md5: expected 32 hexadecimal digits"),
        ("{url: 'https://x.org/', size: 1}", "data[0]: needs path: the URL does not end with a name"),
        ("{url: 'https://x.org/..', size: 1}", "data[0]: expected a path inside $VASTRUN_DATA"),
        ("{url: 'https://x.org/%2e%2e', size: 1}", "data[0]: expected a path inside $VASTRUN_DATA"),
        ("{url: 'https://x.org/a', size: 1, path: ../a}", "data[0].path: expected a path inside"),
        ("{url: 'https://x.org/a', size: 1, path: /a}", "data[0].path: expected a path inside"),
        ("{url: 'https://x.org/a', size: 1, path: .a}", "data[0].path: expected a path inside"),
        ('{url: "https://x.org/a", size: 1, path: "a\\nb"}', "data[0].path: expected a path of at most 255"),
        ("{url: 'https://x.org/a', max_gb: 11}", "data: needs 11 GB, but resources.disk_gb is 10"),
        ("{size: 1}", "data[0]: expected url, or path: a file or folder of this computer"),
        ("{path: a, size: 1}", "data[0]: expected no checksum and no size"),
        ("{path: a/..}", "data[0].path: expected a path inside $VASTRUN_DATA"),
        ("{path: .}", "data[0]: needs path: . does not end with a name"),
    ],
)
def test_what_cannot_be_downloaded_is_a_fault(entry: str, said: str) -> None:
    (found,) = faults(job(entry))
    assert said in found
    assert "secret" not in found


def test_each_file_needs_a_path_of_its_own() -> None:
    one = "{url: 'https://x.org/a', size: 1}"
    assert "data[1]: a conflicts with a of data[0]" in faults(job(one, one))[0]
    assert "data[1].path: a conflicts with a of data[0]" in faults(job(one, "{path: ../x/a}"))[0]
    below = "{url: 'https://x.org/b', size: 1, path: a/b}"
    assert "data[1].path: a/b conflicts with a of data[0]" in faults(job(one, below))[0]


def test_two_checksums_of_one_file_are_too_many() -> None:
    entry = f"{{url: 'https://x.org/a', size: 1, sha256: {SHA256}, md5: {SHA256[:32]}}}"
    assert "data[0].md5: conflicts with sha256" in faults(job(entry))[0]


def test_what_the_solvers_write_must_fit_on_the_disk() -> None:
    text = "name: demo\nresources: {gpus: 0, disk_gb: 10}\ntrain:\n  data: "
    cube = (
        "{task: compressible_3d, points: 64, frames: 21, dt: 0.05, train: 56, test: 8, etas: [0.1, 0.01]}\n"
    )
    (fault,) = faults(text + cube)
    # Two files of 64 samples with 21 frames, 5 channels and 64^3 points; one of them twice while it is made.
    assert (
        "train.data: the solvers of compressible_3d need 21.1 GB of disk, but resources.disk_gb is 10"
        in fault
    )
    assert load(text + cube.replace("64, frames", "32, frames")).train is not None


def test_a_job_that_downloads_its_data_needs_no_room_for_a_solvers_files() -> None:
    text = "name: demo\nresources: {gpus: 0, disk_gb: 100}\n"
    text += "train: {data: {task: compressible_3d, points: 128, train: 90, test: 10}}\n"
    assert faults(text)
    download = f"data: [{{url: 'https://x.org/a.h5', max_gb: 89, sha256: {SHA256}}}]\n"
    assert load(text + download).data_gb == 89
