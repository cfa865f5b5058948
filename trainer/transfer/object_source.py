"""Object source: read a file from an object store with fsspec, from any offset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vastrun.trainer.transfer.download_error import DataFileError, InterruptedDownload
from vastrun.trainer.transfer.http_source import OpenFile
from vastrun.trainer.transfer.remote_checkpoints import in_one_line, transfer_errors

_BLOCK_BYTES = 16 << 20


class ObjectSource:
    """A file in a bucket, with the credentials of the environment."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.server = url.partition("://")[2].partition("/")[0]
        """Name of the bucket."""

    @contextmanager
    def open(self, offset: int, version: str) -> Iterator[OpenFile]:
        """Open the file at an offset; at 0 when it has another version than before.

        Raises DataFileError and InterruptedDownload, also for errors while it is read.
        """
        try:
            # Imported here: a job without such a URL does not need fsspec.
            from fsspec.core import url_to_fs

            files, path = url_to_fs(self._url, use_listings_cache=False, skip_instance_cache=True)
            about = files.info(path)
            now = str(about.get("ETag", ""))
            start = offset if now == version and offset <= about["size"] else 0
            # A plain reading ahead: the file is read once, from the front.
            with files.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead") as stream:
                stream.seek(start)
                yield OpenFile(read=stream.read, offset=start, total=about["size"], version=now)
        except transfer_errors() as error:
            raise self._mapped(error) from error

    def _mapped(self, error: BaseException) -> DataFileError | InterruptedDownload:
        text = in_one_line(error)
        if isinstance(error, ImportError):
            return DataFileError("job", f"{self._url.partition('://')[0]}:// needs a package: {text}")
        if isinstance(error, FileNotFoundError):
            return DataFileError("job", f"the bucket {self.server} has no such file")
        # botocore's class is not imported for its name: without credentials it may be any version.
        if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
            return DataFileError(
                "job",
                f"the bucket {self.server} refuses access: {text} "
                "(secrets: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY] in the job file)",
            )
        return InterruptedDownload("server", f"the bucket {self.server} cannot be read: {text}")
