"""The server from which files are downloaded."""

from collections.abc import Iterator

import pytest

from tests.onstart.transfer.downloads import CONTENT
from tests.onstart.transfer.file_server import FileServer, serving


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(CONTENT) as state:
        yield state
