"""Checkpoints that were made to hurt whoever reads them."""

import json
from pathlib import Path

from vastrun.contract.checkpoint_folder import checksum_file


class Program:
    """What a pickle may do when it is read."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        call, *arguments = self.call
        return call, tuple(arguments)


def with_metadata(checkpoint: Path, metadata: bytes) -> None:
    """The checkpoint holds them, and is whole."""
    with_file(checkpoint, ".metadata", metadata)


def with_file(checkpoint: Path, name: str, content: bytes) -> None:
    """The file of the checkpoint holds that, and the checkpoint is whole."""
    (checkpoint / name).write_bytes(content)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"] = [vars(checksum_file(checkpoint / file["path"])) for file in manifest["files"]]
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
