"""Lies about checkpoints that are downloaded during a training: names, steps, sizes, counts, checksums."""

import json
from collections.abc import Mapping

from tests.hostile.lie import STEERING, Lie, entry
from vastrun.contract import layout

_LATEST = f"{layout.CHECKPOINTS}/latest.json"


def _checkpoint(*files: Lie, manifest: bytes | None = None) -> Lie:
    """The newest checkpoint has these files, or that manifest."""
    entries = [each for file in files for each in file.listed]
    told = json.dumps({"step": 7, "files": entries}).encode() if manifest is None else manifest
    folder = f"{layout.CHECKPOINTS}/step-000007"
    contents = {f"{folder}/{name}": content for file in files for name, content in file.files.items()}
    latest = b'{"step": 7, "path": "step-000007"}'
    return Lie(files={**contents, _LATEST: latest, f"{folder}/manifest.json": told}, harmless=True)


CHECKPOINT_LIES: Mapping[str, Lie] = {
    "newest checkpoint elsewhere": Lie(files={_LATEST: b'{"path": "../../../evil"}'}),
    "newest checkpoint that is large": Lie(files={_LATEST: b'{"path": "' + b"x" * 100_000 + b'"}'}),
    "newest checkpoint of a step without an end": Lie(
        files={_LATEST: b'{"path": "step-' + b"9" * 40 + b'"}'}
    ),
    "newest checkpoint in digits of another script": Lie(
        files={_LATEST: '{"path": "step-\u0660\u0660\u0660\u0660\u0660\u0667"}'.encode()}
    ),
    "newest checkpoint of a negative step": Lie(files={_LATEST: b'{"path": "step--00007"}'}),
    "newest checkpoint that steers": Lie(files={_LATEST: json.dumps({"path": f"step-{STEERING}"}).encode()}),
    "newest checkpoint that is not there": Lie(files={_LATEST: b'{"path": "step-000999"}'}),
    "checkpoint without an end": _checkpoint(entry("x", size=10**14)),
    "checkpoint that leads out": _checkpoint(entry("../../../../evil")),
    "checkpoint with a file that leads out": _checkpoint(entry("files/checkpoints/../../../../../evil")),
    "checkpoint with an absolute path": _checkpoint(entry("/etc/evil")),
    "checkpoint whose file is its manifest": _checkpoint(entry("manifest.json")),
    "checkpoint with git settings": _checkpoint(entry("files/.git/config")),
    "checkpoint with a name that steers": _checkpoint(entry("files/\x1b[2J\u202e")),
    "checkpoint with a zero in a name": _checkpoint(entry("files/a\0b")),
    "checkpoint of a negative size": _checkpoint(entry("files/a", size=-1)),
    "checkpoint of a size that is text": _checkpoint(entry("files/a", size="4")),
    "checkpoint whose checksum is a path": _checkpoint(entry("files/a", sha256="../../../../evil")),
    "checkpoint that does not match its manifest": _checkpoint(entry("files/a", sha256="0" * 64)),
    "checkpoint that is shorter than its manifest says": _checkpoint(entry("files/a", size=5)),
    "checkpoint that is longer than its manifest says": _checkpoint(entry("files/a", size=3)),
    "checkpoint with a file and folder of one name": _checkpoint(entry("files/a"), entry("files/a/b")),
    "checkpoint with a file twice": _checkpoint(entry("files/a"), entry("files/a")),
    "checkpoint with paths of many folders": _checkpoint(
        *(entry(f"files/{n}/{'a/' * 500}x") for n in range(1500))
    ),
    "checkpoint of no files": _checkpoint(),
    "checkpoint of many files": _checkpoint(manifest=b'{"files": [' + b"{}," * 100_000 + b"{}]}"),
    "checkpoint with a list that is none": _checkpoint(manifest=b'{"files": {}}'),
    "checkpoint with a manifest that is large": _checkpoint(
        manifest=b'{"files": [' + b"{}," * 6_000_000 + b"{}]}"
    ),
    "checkpoint with half a manifest": _checkpoint(manifest=b'{"step": 7, "files": ['),
}
