"""What an offline W&B run says of itself: its `.wandb` file, a log of records as LevelDB writes them."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.waiting import eventually

_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
_FULL, _LAST = 1, 4


def recorded_run(folder: Path) -> Any:
    """The run in the folder `wandb`, as `wandb sync` would tell it to the server.

    W&B's own process writes the file, and may do so after the run has ended for everybody else.
    """
    (file,) = folder.glob("offline-run-*/*.wandb")
    return eventually(lambda: _run_in(file), what=f"a run in {file}")


def _run_in(file: Path) -> Any:
    from wandb.proto import wandb_internal_pb2

    for data in _records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "run":
            return record.run
    return None


def _records(content: bytes) -> Iterator[bytes]:
    at, whole = 7, b""
    while at + _HEADER.size <= len(content):
        left = _BLOCK - at % _BLOCK
        if left < _HEADER.size:  # no header fits into the rest of the block
            at += left
            continue
        _, length, kind = _HEADER.unpack_from(content, at)
        whole += content[at + _HEADER.size : at + _HEADER.size + length]
        at += _HEADER.size + length
        if kind in (_FULL, _LAST):
            yield whole
            whole = b""
