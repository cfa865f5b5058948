"""Metadata that were made to take memory and time are refused before they do."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from vastrun.contract.checkpoint_folder import DamagedError
from vastrun.trainer.checkpoints.metadata import read_metadata

pytestmark = pytest.mark.torch

MAX_MB, MAX_S = 200, 20
LARGE = 60_000_000
TRAPS = {
    "dictionaries": b"\x80\x04" + b"}" * LARGE,
    "places to remember": b"\x80\x04}" + b"\x94" * LARGE,
    "tuples": b"\x80\x04N" + b"\x85" * LARGE,
    "a wide text": b"\x80\x04X"
    + (7_000_000).to_bytes(4, "little")
    + "\U0001f600".encode() * 1_750_000
    + b".",
    "few bytes, many parts": b"\x80\x04" + b"}" * 8_000_000,
    "numbers": b"\x80\x04" + b"M\xff\xff" * 2_700_000,
}
MEASURED = """
import json, resource, sys, time
from pathlib import Path
from vastrun.trainer.checkpoints.metadata import read_metadata
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
before, began = peak(), time.process_time()
try:
    read_metadata(Path(sys.argv[1]))
except Exception as error:
    said = type(error).__name__
print(json.dumps([said, peak() - before, time.process_time() - began]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_costs_little_memory_and_time(trap: str, tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(TRAPS[trap])
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    said, mb, seconds = json.loads(done.stdout)
    assert said == "DamagedError"
    assert mb <= MAX_MB
    assert seconds <= MAX_S


def test_more_parts_than_the_tensors_can_have_are_refused(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(TRAPS["few bytes, many parts"])
    with pytest.raises(DamagedError, match="too many parts for its tensors"):
        read_metadata(tmp_path)


@pytest.mark.slow
def test_a_checkpoint_of_many_ranks_is_read(tmp_path: Path) -> None:
    pieces = 512
    tensors, places = {}, {}
    for name in (f"model.layers.{number}.attention.weight" for number in range(60)):
        chunks = [
            ChunkStorageMetadata(offsets=torch.Size([rank * 64, 0]), sizes=torch.Size([64, 256]))
            for rank in range(pieces)
        ]
        tensors[name] = TensorStorageMetadata(
            properties=TensorProperties(dtype=torch.float32),
            size=torch.Size([64 * pieces, 256]),
            chunks=chunks,
        )
        for rank in range(pieces):
            place = _StorageInfo(f"__{rank}_0.distcp", 0, 65_536)
            places[MetadataIndex(name, torch.Size([rank * 64, 0]), rank)] = place
    content = pickle.dumps(Metadata(state_dict_metadata=tensors, storage_data=places))
    (tmp_path / ".metadata").write_bytes(content)
    with (tmp_path / "__0_0.distcp").open("wb") as file:
        file.truncate(60 * pieces * 65_536)
    assert len(read_metadata(tmp_path).storage_data) == 60 * pieces
